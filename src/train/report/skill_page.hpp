// What a report shows of an evaluation of forecasts: RUN/skill.json (format "garonne.skill",
// docs/formats.md).
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "data/statistics/skill_file.hpp"

namespace garonne::train {

inline constexpr const char* skill_page_file = "skill.json";

// Maps small enough for a page: means over blocks of points, 256 values each.
class SkillPage {
 public:
  // Spectra and maps of more channels than this are in the HDF5 file only.
  static constexpr std::size_t most_channels = 8;
  static constexpr std::int64_t most_rows = 96;
  static constexpr std::int64_t most_columns = 192;

  explicit SkillPage(const data::SkillSetting& setting);

  // As SkillFile::write_map. Fields that are no plane are left out.
  void add_map(std::size_t sample, std::size_t lead, double seconds, std::span<const float> truth,
               std::span<const float> forecast);

  // Numbers by source, lead and channel, spectra, maps; what is NaN is null.
  nlohmann::ordered_json to_json(const data::SkillSetting& setting,
                                 const data::SkillResults& results) const;

 private:
  std::size_t channels_;
  std::int64_t rows_ = 0;  // of the data; 0 = no plane
  std::int64_t columns_ = 0;
  std::int64_t block_rows_ = 1;
  std::int64_t block_columns_ = 1;
  data::Calendar calendar_;
  nlohmann::ordered_json fields_ = nlohmann::ordered_json::array();
};

// Means over blocks [block_rows, block_columns] of a field [rows, columns]; blocks at the end may
// be smaller.
std::vector<float> block_means(std::span<const float> field, std::int64_t rows,
                               std::int64_t columns, std::int64_t block_rows,
                               std::int64_t block_columns);

// Base64 (RFC 4648) of one byte a value: 0 for `low`, 255 for `high`, linear between.
std::string quantised(std::span<const float> values, double low, double high);

// RUN/skill.json, or null where the run has none. Throws ConfigError with the path for another
// text.
nlohmann::ordered_json skill_of_run(const std::string& run_directory);

}  // namespace garonne::train
