// Writing the yearly files of FourCastNet and makani, with what belongs beside them:
// docs/formats.md, "Fields: the yearly layout".
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/partial_file.hpp"
#include "base/sphere_grid.hpp"
#include "data/hdf5/hdf5.hpp"

namespace garonne::data {

struct YearlyFields {
  std::string name;                   // of the data set
  std::vector<std::string> channels;  // names
  SphereGrid grid;
  double frame_seconds = 0;
  std::int64_t trajectory_length = 0;  // frames after which another trajectory begins; 0 = one run
  // Attributes of every file.
  std::map<std::string, std::string> texts;
  std::map<std::string, double> numbers;
  std::map<std::string, std::int64_t> integers;

  std::vector<float> latitudes() const;   // degrees north, descending
  std::vector<float> longitudes() const;  // degrees east from 0
};

// One file: `fields` [frame, channel, latitude, longitude] float32, and its dimension scales.
class YearlyFile {
 public:
  // Frame i is at first_time + i · frame_seconds (seconds UTC since 1970). IoError.
  YearlyFile(const YearlyFields& description, const std::string& path, std::int64_t frames,
             double first_time);

  // [channels, latitudes, longitudes]
  void write_frame(std::int64_t frame, std::span<const float> values);
  void publish();

 private:
  PartialFile partial_;
  Hdf5File file_;
  std::optional<Hdf5Dataset> fields_;
  std::vector<std::int64_t> frame_shape_;
};

// Bytes that such a file takes, about.
std::int64_t yearly_file_bytes(const YearlyFields& description, std::int64_t frames);

// data.json in `folder`, which tells makani's programs what the files hold.
void write_yearly_metadata(const YearlyFields& description, const std::string& folder);

// Makes `folder` with train, test (where `with_test`) and stats in it. ConfigError where it already
// holds field files, with which new ones would be mixed.
void make_yearly_folder(const std::string& folder, bool with_test);

}  // namespace garonne::data
