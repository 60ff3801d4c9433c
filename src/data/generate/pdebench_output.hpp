// Writing samples in PDEBench's layout: docs/formats.md, "Generated fields".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/partial_file.hpp"
#include "data/hdf5/hdf5.hpp"

namespace garonne::data {

struct PdebenchArray {
  std::string name;
  std::vector<std::int64_t> shape;  // of one sample
  std::string long_name;            // what it is, beside a name that only the layout has
  std::string units;                // empty = none

  std::int64_t elements() const;
};

// What a file holds.
struct PdebenchFields {
  std::vector<PdebenchArray> arrays;  // a sample's values come in this order
  std::vector<std::pair<std::string, std::vector<float>>> coordinates;
  std::vector<std::pair<std::string, std::variant<std::string, double, std::int64_t>>> attributes;
};

// A file of training samples and one of held-out ones, whose numbers follow theirs.
struct SampleFiles {
  std::string output;
  std::string test_output;  // empty = none are held out
  std::int64_t samples = 0;
  std::int64_t test_samples = 0;

  std::int64_t held_out() const { return test_output.empty() ? 0 : test_samples; }
  std::int64_t count() const { return samples + held_out(); }
};

// ConfigError (keys "samples", "test-samples", "test", and the options of the files) for files that
// cannot be, or where there are others that no generator wrote.
void check(const SampleFiles& files);

// One file: arrays [sample, …] float32.
class PdebenchFile {
 public:
  PdebenchFile(const PdebenchFields& fields, const std::string& path, std::int64_t samples);

  void write(std::int64_t sample, std::span<const float> values);
  void publish();

 private:
  struct Part {
    PdebenchArray array;
    Hdf5Dataset dataset;
  };

  PartialFile partial_;
  Hdf5File file_;
  std::vector<Part> parts_;
};

// Both files.
class PdebenchOutput {
 public:
  // IoError where they cannot be made, or where there is no space for all samples.
  PdebenchOutput(const PdebenchFields& fields, const SampleFiles& files);

  void write(std::int64_t sample, std::span<const float> values);
  // Files are what they were until this.
  void publish();

 private:
  std::int64_t samples_;
  std::optional<PdebenchFile> training_;
  std::optional<PdebenchFile> held_out_;
};

}  // namespace garonne::data
