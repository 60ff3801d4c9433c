// Results of an evaluation of forecasts, and their HDF5 file (format "garonne.skill",
// docs/formats.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/fields/field_dataset.hpp"

namespace garonne::data {

// What was evaluated and how.
struct SkillSetting {
  std::string run;
  std::int64_t step = 0;                  // of the checkpoint
  std::string data;                       // that forecasts start from and are compared with
  std::int64_t samples = 0;               // forecasts
  std::int64_t leads = 0;                 // steps of each, from 1
  double lead_seconds = 0;                // of a step; 0 = unknown, or pairs
  std::string weighting;                  // name, as train/evaluation/skill.hpp
  std::string climatology;                // for people; known after the evaluation
  std::vector<std::string> sources;       // "model", and what it is compared with
  std::vector<std::string> channels;      // that are predicted
  std::vector<double> row_weights;        // [points[0]]
  std::vector<double> start_times;        // [samples] of what forecasts start from; NaN = unknown
  std::int64_t members = 1;               // of ensembles; 1 = there are none
  double noise = 0;                       // of their initial states, in deviations
  std::vector<std::int64_t> map_samples;  // numbers of the samples that maps are kept of
  std::vector<std::int64_t> map_leads;    // likewise, steps
  FieldDatasetInfo fields;                // points, axes, coordinates and grid of this
};

struct SkillResults {
  // All [sources, leads, channels]; NaN where there is none.
  std::vector<double> rmse;
  std::vector<double> bias;
  std::vector<double> relative_l2;
  std::vector<double> anomaly_correlation;
  // Of ensembles, train/evaluation/ensemble_skill.hpp: [leads, channels], the last with an axis
  // more of members + 1; empty without.
  std::vector<double> crps;
  std::vector<double> spread;
  std::vector<double> spread_skill_ratio;
  std::vector<double> ranks;
  std::string spectrum;  // "spherical" or "zonal"
  std::vector<std::int64_t> spectrum_leads;
  std::int64_t wavenumbers = 0;  // or degrees, from 0 on
  // Both [spectrum_leads, channels, wavenumbers], means over samples.
  std::vector<double> truth_spectrum;
  std::vector<double> model_spectrum;
};

// Writes beside `path` and renames when finished, so that a file is whole. Every failure is an
// ConfigError (--output) where something else is at the path (base/output_file.hpp); IoError with
// the path.
class SkillFile {
 public:
  SkillFile(const std::string& path, const SkillSetting& setting);
  ~SkillFile();  // removes what was not finished
  SkillFile(const SkillFile&) = delete;
  SkillFile& operator=(const SkillFile&) = delete;

  // Fields [channels, points…] of the map_samples[sample] at map_leads[lead]; `seconds`: the time
  // that they are of, NaN without.
  void write_map(std::size_t sample, std::size_t lead, double seconds, std::span<const float> truth,
                 std::span<const float> forecast);
  // `climatology`: what it was, for people.
  void finish(const std::string& climatology, const SkillResults& results);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace garonne::data
