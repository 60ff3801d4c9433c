// Yearly files of random weather with the names, shapes and sizes of ERA5: for trying programs,
// reading speed and scaling where the real data are not.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/sphere_grid.hpp"
#include "dist/session.hpp"

namespace garonne::data {

struct SyntheticEra5Generation {
  std::string output;  // folder
  SphereGridKind grid = SphereGridKind::Equiangular;
  std::int64_t latitudes = 121;
  std::int64_t longitudes = 240;
  std::int64_t degrees = 0;           // of the random fields; 0: a third of the latitudes, ≤ 240
  std::vector<std::string> channels;  // names as z500; none = all 73
  std::int64_t first_year = 1979;
  std::int64_t years = 2;          // of training
  std::int64_t test_years = 1;     // the ones after
  std::int64_t frame_hours = 6;    // must divide 24
  std::int64_t frames_a_year = 0;  // 0 = the whole year
  std::uint64_t seed = 0;
  bool show_progress = true;
};

struct SyntheticEra5Summary {
  std::int64_t frames = 0;  // of all files
  std::int64_t bytes = 0;   // of their fields
  std::vector<std::string> channels;
  std::vector<double> means;       // of the training years
  std::vector<double> deviations;  // so too
};

// Writes train/YEAR.h5, test/YEAR.h5, data.json and stats into the folder. Frames are made one
// after the other, their channels shared by the ranks; files are the same for any number of ranks.
// Collective; the summary is rank 0's. ConfigError, IoError.
SyntheticEra5Summary generate_synthetic_era5(dist::Session& session,
                                             const SyntheticEra5Generation& generation);

}  // namespace garonne::data
