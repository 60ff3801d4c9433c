// Times reading of fields, alone and ahead of a consumer that computes. Not a test: run
//   build/tests/field_benchmark [FILE|FOLDER [BATCH [ROWS]]]
// Without arguments it makes four yearly files of 8 channels on 181 × 360 points (64 MiB) first.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "data/fields/field_stream.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/sample_order.hpp"

namespace garonne::data {
namespace {

double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

void make_files(const std::string& folder) {
  std::filesystem::create_directories(folder);
  const std::vector<std::int64_t> shape = {8, 8, 181, 360};
  std::vector<float> values(8 * 8 * 181 * 360);
  std::iota(values.begin(), values.end(), 0.0F);
  const std::vector<std::int64_t> origin(4, 0);
  for (int year = 0; year < 4; ++year) {
    Hdf5File file = Hdf5File::create(fmt::format("{}/{}.h5", folder, 1979 + year));
    file.create_array<float>("fields", shape).write_box<float>(origin, shape, values);
    std::vector<double> times(8);
    for (std::size_t frame = 0; frame < 8; ++frame) {
      times[frame] = 21600.0 * (8.0 * year + static_cast<double>(frame));
    }
    const std::vector<std::int64_t> count = {8};
    file.create_array<double>("timestamp", count).write<double>(0, times);
    file.close();
  }
}

int run(int argc, char** argv) {
  std::string path = argc > 1 ? argv[1] : "";
  const std::int64_t batch = argc > 2 ? std::stoll(argv[2]) : 2;
  const std::int64_t rows = argc > 3 ? std::stoll(argv[3]) : -1;
  const bool own = path.empty();
  if (own) {
    path = (std::filesystem::temp_directory_path() / "garonne_field_benchmark").string();
    make_files(path);
  }
  FieldQuery query;
  query.path = path;
  query.missing = "mask";
  {
    FieldDataset dataset = FieldDataset::open(query);
    const FieldDatasetInfo& info = dataset.info();
    const std::int64_t read_rows = rows < 0 ? info.points[0] : rows;
    std::vector<float> input(static_cast<std::size_t>(info.input_values(read_rows)));
    std::vector<float> target(static_cast<std::size_t>(info.target_values(read_rows)));
    for (const char* order : {"in order", "shuffled"}) {
      const SampleOrder shuffle(info.samples, 1, 1);
      const double begin = now();
      const std::int64_t before = dataset.values_read();
      const std::int64_t count = std::min<std::int64_t>(info.samples, 64);
      for (std::int64_t index = 0; index < count; ++index) {
        const std::int64_t sample = order[0] == 'i' ? index : shuffle.sample(index);
        dataset.read(sample, {0, rows}, input.data(), target.data());
      }
      const double bytes = 4.0 * static_cast<double>(dataset.values_read() - before);
      fmt::print("{:<9} {:8.1f} MB/s\n", order, bytes / (now() - begin) / 1e6);
    }
    const std::int64_t samples = info.samples;
    // A consumer that takes as long for a batch as reading one, and twice as long.
    const auto stream_of = [&] {
      return FieldStream(
          std::make_shared<Reader>(), query, {0, rows}, {},
          [=](std::int64_t ordinal) {
            std::vector<std::int64_t> chosen;
            for (std::int64_t index = 0; index < batch; ++index) {
              chosen.push_back((ordinal * batch + index) % samples);
            }
            return chosen;
          },
          0);
    };
    double alone = 0;
    {
      FieldStream stream = stream_of();
      stream.next();
      const double begin = now();
      for (int step = 0; step < 10; ++step) stream.next();
      alone = (now() - begin) / 10;
    }
    for (const double busy : {1.0, 2.0}) {
      FieldStream stream = stream_of();
      stream.next();
      double waited = 0;
      volatile float sink = 0;
      for (int step = 0; step < 10; ++step) {
        const double until = now() + busy * alone;
        while (now() < until) sink = sink + 1;
        const double begin = now();
        stream.next();
        waited += (now() - begin) / 10;
      }
      fmt::print(
          "a batch takes {:.2f} ms; after {:.2f} ms of computing it is waited for {:.2f} ms\n",
          1e3 * alone, 1e3 * busy * alone, 1e3 * waited);
    }
  }
  if (own) std::filesystem::remove_all(path);
  return 0;
}

}  // namespace
}  // namespace garonne::data

int main(int argc, char** argv) {
  try {
    return garonne::data::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
