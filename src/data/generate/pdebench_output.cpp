#include "data/generate/pdebench_output.hpp"

#include <fmt/format.h>

#include <functional>
#include <numeric>

#include "base/error.hpp"
#include "data/disk_space.hpp"
#include "data/hdf5/hdf5_output.hpp"

namespace garonne::data {
namespace {

// Of everything but the samples.
constexpr std::int64_t other_bytes = 65536;

void write_attribute(Hdf5File& file, const std::string& name, const std::string& value) {
  file.write_attribute(name, value);
}
void write_attribute(Hdf5File& file, const std::string& name, std::int64_t value) {
  file.write_attribute(name, value);
}
void write_attribute(Hdf5File& file, const std::string& name, double value) {
  file.attributes("/").write(name, std::span<const double>(&value, 1));
}

}  // namespace

std::int64_t PdebenchArray::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

void check(const SampleFiles& files) {
  if (files.samples < 1) {
    throw ConfigError("samples", fmt::format("{}", files.samples), "must be at least 1");
  }
  if (files.test_samples < 0) {
    throw ConfigError("test-samples", fmt::format("{}", files.test_samples), "is negative");
  }
  if (files.output == files.test_output) {
    throw ConfigError("test", files.test_output, "is the file of the training samples too");
  }
  const char* const name = "a file that this command makes";
  OutputKind kind = hdf5_output(name, "garonne data darcy", "generator");
  const OutputKind other = hdf5_output(name, "garonne data navier-stokes", "generator");
  kind.is_one = [one = kind.is_one, two = other.is_one](const std::string& path) {
    return one(path) || two(path);
  };
  expect_output("--output", files.output, kind);
  if (!files.test_output.empty()) expect_output("--test", files.test_output, kind, {files.output});
}

PdebenchFile::PdebenchFile(const PdebenchFields& fields, const std::string& path,
                           std::int64_t samples)
    : partial_(path), file_(Hdf5File::create(partial_.path())) {
  for (const PdebenchArray& array : fields.arrays) {
    std::vector<std::int64_t> shape = {samples};
    shape.insert(shape.end(), array.shape.begin(), array.shape.end());
    parts_.push_back({array, file_.create_array<float>(array.name, shape)});
    Hdf5Attributes attributes = file_.attributes(array.name);
    attributes.write("long_name", array.long_name);
    if (!array.units.empty()) attributes.write("units", array.units);
  }
  for (const auto& [name, points] : fields.coordinates) {
    const std::vector<std::int64_t> length = {static_cast<std::int64_t>(points.size())};
    file_.create_array<float>(name, length).write(0, std::span<const float>(points));
    if (name == "t-coordinate") file_.attributes(name).write("units", std::string("s"));
  }
  for (const auto& [name, value] : fields.attributes) {
    std::visit([&](const auto& held) { write_attribute(file_, name, held); }, value);
  }
}

void PdebenchFile::write(std::int64_t sample, std::span<const float> values) {
  for (Part& part : parts_) {
    std::vector<std::int64_t> first(part.array.shape.size() + 1, 0);
    first[0] = sample;
    std::vector<std::int64_t> count = {1};
    count.insert(count.end(), part.array.shape.begin(), part.array.shape.end());
    const auto elements = static_cast<std::size_t>(part.array.elements());
    part.dataset.write_box(first, count, values.first(elements));
    values = values.subspan(elements);
  }
  expect(values.empty(), "a sample has more values than its arrays");
}

void PdebenchFile::publish() {
  parts_.clear();
  file_.close();
  partial_.publish();
}

PdebenchOutput::PdebenchOutput(const PdebenchFields& fields, const SampleFiles& files)
    : samples_(files.samples) {
  std::int64_t sample_bytes = 0;
  for (const PdebenchArray& array : fields.arrays) {
    sample_bytes += array.elements() * static_cast<std::int64_t>(sizeof(float));
  }
  // Of both, since they may lie on one disk.
  check_space(files.output, sample_bytes * files.count() + other_bytes);
  training_.emplace(fields, files.output, files.samples);
  if (files.held_out() == 0) return;
  check_space(files.test_output, sample_bytes * files.held_out() + other_bytes);
  held_out_.emplace(fields, files.test_output, files.held_out());
}

void PdebenchOutput::write(std::int64_t sample, std::span<const float> values) {
  if (sample < samples_) {
    training_->write(sample, values);
  } else {
    held_out_->write(sample - samples_, values);
  }
}

void PdebenchOutput::publish() {
  training_->publish();
  if (held_out_) held_out_->publish();
}

}  // namespace garonne::data
