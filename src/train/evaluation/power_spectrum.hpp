// How much of a field is in which scale.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/fields/field_dataset.hpp"
#include "train/evaluation/skill.hpp"

namespace garonne::data {
class SphereTransform;
}

namespace garonne::train {

// Power of a field by scale.
//   spherical  of degree l: Σ_m |c_l^m|² over all orders −l … l, with orthonormal harmonics; the
//   sum
//              over degrees is the integral of the squared field over the unit sphere
//   zonal      of wavenumber k along the last axis: C |F_k|², twice that where −k is another
//              wavenumber, F the Fourier coefficients of a row and C its length (metres on
//              latitudes, else 1); mean over rows, weighted. The sum over k is the mean of C times
//              the squared field (as WeatherBench 2, but for the last of an even number of
//              wavenumbers)
// Rows that do not close on themselves are made to, by taking away the line between their ends
// (Errico 1985, "Spectra computed from a limited area grid").
class PowerSpectrum {
 public:
  // Spherical on grids with exact quadrature, zonal elsewhere.
  PowerSpectrum(const data::FieldDatasetInfo& info, const Weighting& weighting);
  ~PowerSpectrum();

  const std::string& kind() const { return kind_; }
  std::size_t size() const { return size_; }  // degrees, or wavenumbers, from 0 on
  // Adds that of `field` [points…] to `sum` [size()]. Not thread-safe: work space is kept.
  void add(std::span<const float> field, std::span<double> sum);

 private:
  void add_spherical(std::span<double> sum);
  void add_zonal(std::span<double> sum);

  std::string kind_;
  std::size_t size_ = 0;
  std::int64_t columns_ = 0;
  bool closed_ = false;
  std::vector<double> row_factor_;  // [rows]: weight · C / rows
  std::unique_ptr<data::SphereTransform> sphere_;
  std::vector<double> values_;
};

}  // namespace garonne::train
