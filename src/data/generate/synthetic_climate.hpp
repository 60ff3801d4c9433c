// Random weather: fields on the sphere that look, from far, like those of a reanalysis.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/philox.hpp"
#include "data/generate/sphere_transform.hpp"

namespace garonne::data {

// A quantity's climate: mean(φ, day) = base + gradient · (sin²φ − 1/3) + season · sin φ ·
// cos(2π(day − 15)/365.25), around which it varies with `deviation`, carried eastward by `drift`
// and forgotten over `memory`.
struct ChannelClimate {
  std::string name;
  double base = 0;
  double gradient = 0;
  double season = 0;
  double deviation = 1;
  double drift = 0;       // degrees of longitude a day
  double memory = 3;      // days, of the largest waves
  double floor = -1e300;  // values below are raised to it
};

// The 73 prognostic channels of makani's configuration for ERA5, in its order: winds near the
// surface, t2m, sp, msl, tcwv, then u, v, z, t, q at thirteen pressures. Climates are rough.
const std::vector<ChannelClimate>& era5_channels();
// Those named, in the order of `names`; all for no names. ConfigError for an unknown one.
std::vector<ChannelClimate> choose_channels(const std::vector<std::string>& names);

// One channel's anomalies: coefficients of degree l follow a stationary Gaussian process with
// correlation exp(−t/memory_l), memory_l = memory/(1 + l/4), turned by drift, and variance C_l ∝
// (l(l+1) + 16)^(−2), scaled to variance 1 at a point. Time step n of a key and channel number is
// the same whatever is asked for.
class ChannelWeather {
 public:
  ChannelWeather(const ChannelClimate& climate, std::uint64_t number, PhiloxKey key,
                 std::int64_t degrees, double frame_days);

  // Moves on by one frame; the first call makes frame 0.
  void advance();
  // The field at the present frame, [latitudes, longitudes], `day` counted from a 1 January.
  void write(SphereTransform& transform, double day, std::vector<double>& field) const;

 private:
  ChannelClimate climate_;
  std::uint64_t number_;
  PhiloxKey key_;
  std::int64_t degrees_;
  double frame_days_;
  std::int64_t frame_ = -1;
  std::vector<double> deviation_;      // [degrees], of a complex coefficient
  std::vector<double> correlation_;    // [degrees], from frame to frame
  std::vector<Complex> coefficients_;  // as SphereTransform has them
};

}  // namespace garonne::data
