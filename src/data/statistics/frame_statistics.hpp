// The statistics files of makani, gathered while frames go by.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/sphere_grid.hpp"

namespace garonne::data {

// Means over a frame are those over the sphere, by the quadrature of its grid. Sums are in float64
// and in the order of the frames. Holds one frame and its mean over time.
class FrameStatistics {
 public:
  FrameStatistics(const SphereGrid& grid, std::int64_t channels);

  // values [channels, latitudes, longitudes]; `continues`: one time step after the frame before.
  void add(std::span<const float> values, bool continues);

  // global_means, global_stds, mins, maxs, time_diff_means_dt1, time_diff_stds_dt1 (1, channels, 1,
  // 1) and time_means (1, channels, latitudes, longitudes) as .npy, float32. Without two frames one
  // step apart there are no files of differences. IoError.
  void write(const std::string& folder) const;

  // Of one channel over all that was added.
  double mean(std::int64_t channel) const {
    return values_[static_cast<std::size_t>(channel)].mean;
  }
  double deviation(std::int64_t channel) const;

 private:
  // Mean and sum of squared distances from it, of frames of equal weight: Chan, Golub, LeVeque,
  // "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
  struct Moments {
    double frames = 0;
    double mean = 0;
    double squares = 0;
    void add(double frame_mean, double frame_variance);
    double deviation() const;
  };

  SphereGrid grid_;
  std::int64_t channels_;
  std::int64_t frames_ = 0;
  std::vector<Moments> values_;       // [channels]
  std::vector<Moments> differences_;  // [channels]
  std::vector<float> least_;          // [channels]
  std::vector<float> largest_;        // [channels]
  std::vector<double> time_sums_;     // [channels, latitudes, longitudes]
  std::vector<float> before_;         // so too: the frame before
};

}  // namespace garonne::data
