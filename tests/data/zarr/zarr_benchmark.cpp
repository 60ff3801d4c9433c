// Times reading of the same fields from a Zarr store and from netCDF-4, chunk for chunk. Not a
// test: run build/tests/zarr_benchmark. Values are smooth, so that they compress as fields do.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "data/fields/field_dataset.hpp"
#include "data/fields/forecast_file.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/zarr/zarr_files.hpp"

namespace garonne::data {
namespace {

constexpr std::int64_t frames = 24;
constexpr std::int64_t rows = 361;
constexpr std::int64_t columns = 720;
using Shape = std::vector<std::int64_t>;

double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

std::vector<double> axis(double first, double step, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(first + step * static_cast<double>(i));
  return values;
}

std::vector<float> fields() {
  std::vector<float> values;
  for (std::int64_t frame = 0; frame < frames; ++frame) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const double x = static_cast<double>(column) / columns;
        const double y = static_cast<double>(row) / rows;
        values.push_back(
            static_cast<float>(280 + 20 * std::sin(6 * x + 0.1 * double(frame)) * std::cos(9 * y) +
                               0.01 * double((row * 7919 + column * 104729) % 1000)));
      }
    }
  }
  return values;
}

void write_store(const std::string& path, const std::string& codec,
                 const std::vector<float>& values) {
  testing::ZarrWriter writer(path);
  const auto line = [&](const std::string& name, const std::vector<double>& numbers,
                        const std::string& units) {
    const auto count = static_cast<std::int64_t>(numbers.size());
    testing::ZarrArray array{name, {count}, {count}, {name}, "none", "<f8"};
    array.attributes["units"] = units;
    writer.add<double>(array, numbers);
  };
  line("time", axis(0, 6, frames), "hours since 1979-01-01");
  line("latitude", axis(90, -0.5, rows), "degrees_north");
  line("longitude", axis(0, 0.5, columns), "degrees_east");
  testing::ZarrArray array{
      "t", {frames, rows, columns}, {1, rows, columns}, {"time", "latitude", "longitude"}, codec};
  writer.add<float>(array, values);
  writer.consolidate();
}

// `level` of deflate, with Fletcher-32; -1 = no chunks and no filters.
void write_netcdf(const std::string& path, int level, const std::vector<float>& values) {
  Hdf5File file = Hdf5File::create(path);
  const auto line = [&](const std::string& name, const std::vector<double>& numbers,
                        const std::string& units) {
    const Shape shape = {static_cast<std::int64_t>(numbers.size())};
    file.create_array<double>(name, shape).write<double>(0, numbers);
    file.make_scale(name);
    file.attributes(name).write("units", units);
  };
  line("time", axis(0, 6, frames), "hours since 1979-01-01");
  line("latitude", axis(90, -0.5, rows), "degrees_north");
  line("longitude", axis(0, 0.5, columns), "degrees_east");
  const Shape shape = {frames, rows, columns};
  const Shape chunk = {1, rows, columns};
  Hdf5Dataset fields = level < 0 ? file.create_array<float>("t", shape, {})
                                 : file.create_compressed("t", shape, chunk, level);
  fields.write_box<float>(Shape{0, 0, 0}, shape, values);
  int number = 0;
  for (const char* name : {"time", "latitude", "longitude"}) file.attach_scale("t", number++, name);
  file.close();
}

// Of one pass over all frames, in MB/s.
double rate(const std::string& path) {
  FieldQuery query;
  query.path = path;
  FieldDataset dataset = FieldDataset::open(query);
  std::vector<float> input(static_cast<std::size_t>(rows * columns));
  const double begin = now();
  for (std::int64_t frame = 0; frame < frames; ++frame)
    dataset.read_frame(frame, {}, input.data(), nullptr);
  return 4e-6 * double(frames * rows * columns) / (now() - begin);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run() {
  const auto folder = std::filesystem::temp_directory_path() / "garonne_zarr_benchmark";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const std::vector<float> values = fields();
  const auto path = [&](const std::string& name) { return (folder / name).string(); };
  write_netcdf(path("none.nc"), -1, values);
  write_netcdf(path("deflate.nc"), 1, values);
  for (const char* codec : {"none", "blosc", "zstd", "zlib"}) {
    write_store(path(codec), codec, values);
    const std::string other = std::string(codec) == "none" ? "none" : "deflate";
    std::vector<double> rates;
    std::vector<double> other_rates;
    std::vector<double> ratios;
    // In turns, so that a machine whose speed varies slows both.
    for (int turn = 0; turn < 9; ++turn) {
      rates.push_back(rate(path(codec)));
      other_rates.push_back(rate(path(other + ".nc")));
      ratios.push_back(rates.back() / other_rates.back());
    }
    fmt::print(
        "Zarr, {:<6} {:7.1f} MB/s   netCDF-4, {:<8} {:7.1f} MB/s   median of 9 ratios {:.2f}\n",
        codec, median(rates), other, median(other_rates), median(ratios));
  }
  std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace garonne::data

int main() {
  try {
    return garonne::data::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
