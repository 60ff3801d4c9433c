// Forecasts as CF netCDF-4 (format "garonne.forecast", docs/formats.md), written lead by lead, and
// gone on with after an end at any moment.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/fields/field_dataset.hpp"
#include "data/fields/field_step.hpp"

namespace garonne::data {

// What is forecast and from what.
struct ForecastSetting {
  std::string run;
  std::int64_t step = 0;             // of the checkpoint
  std::string model;                 // equal texts, equal parameters
  std::string contents;              // equal texts, equal data, statistics and step in time
  FieldDatasetInfo fields;           // of the initial states; target_channels are forecast
  std::vector<std::int64_t> frames;  // number of the frame of each start
  std::vector<double> starts;        // time of each start; NaN where the data are not dated
  std::vector<double> valid_times;   // [starts, leads]; empty where they are not known
  FieldStep frame_step;              // of the data that the model was trained on
  std::int64_t leads = 0;            // steps, from 1
  double lead_seconds = 0;           // of a step; 0 = unknown
  std::int64_t members = 1;          // of the ensemble; more than one makes a dimension
  double noise = 0;                  // of initial states, in deviations of each channel
  std::uint64_t seed = 1;            // of that
  int compression = 1;               // level of deflate, 0 to 9
};

// A file that is written beside `path`, as `path`.part, and renamed when it is finished. What
// keep() has handed over is there after the process was killed, and a later ForecastFile of the
// same setting goes on behind it. For one process at a time; others may read it (HDF5's SWMR).
class ForecastFile {
 public:
  // ConfigError (--output) where something else is at `path`, also a finished forecast of another
  // setting, as expect_output says. IoError where it cannot be made, where another process is
  // writing it, or where there is a part of another forecast (the message says what differs), or
  // one that cannot be read.
  ForecastFile(const std::string& path, const ForecastSetting& setting);
  ~ForecastFile();
  ForecastFile(const ForecastFile&) = delete;
  ForecastFile& operator=(const ForecastFile&) = delete;

  // Leads of a start and member that are there, from the first on.
  std::int64_t finished(std::size_t start, std::size_t member) const;
  // The state [channels, points…] at lead 1 … finished(); NaN where there is no value.
  void read(std::size_t start, std::size_t member, std::int64_t lead, std::span<float> state) const;
  // Lead finished() + 1, likewise.
  void write(std::size_t start, std::size_t member, std::span<const float> state);
  void keep();
  // Once all leads are written. IoError.
  void publish();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace garonne::data
