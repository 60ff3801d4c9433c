#include "train/evaluation/power_spectrum.hpp"

#include <algorithm>
#include <cmath>
#include <complex>
#include <functional>
#include <numeric>

#include "base/error.hpp"
#include "base/sphere_grid.hpp"
#include "data/generate/fourier.hpp"
#include "data/generate/sphere_transform.hpp"

namespace garonne::train {
namespace {

constexpr double earth_radius = 6371e3;  // metres

std::int64_t count_of(const std::vector<std::int64_t>& points) {
  return std::accumulate(points.begin(), points.end(), std::int64_t{1}, std::multiplies<>());
}

}  // namespace

PowerSpectrum::PowerSpectrum(const data::FieldDatasetInfo& info, const Weighting& weighting)
    : columns_(info.points.back()) {
  const std::int64_t rows = count_of(info.points) / columns_;
  values_.resize(static_cast<std::size_t>(rows * columns_));
  if (const auto grid = quadrature_grid(info)) {
    const std::int64_t degrees =
        std::min(exact_degrees(grid->kind, grid->latitudes), (grid->longitudes + 1) / 2);
    sphere_ = std::make_unique<data::SphereTransform>(*grid, degrees, /*winds=*/false);
    kind_ = "spherical";
    size_ = static_cast<std::size_t>(degrees);
    return;
  }
  kind_ = "zonal";
  size_ = static_cast<std::size_t>(columns_ / 2 + 1);
  closed_ = info.grid == "periodic" || is_sphere_grid(info.grid);
  for (std::int64_t row = 0; row < rows; ++row) {
    // In three dimensions several rows share a place on the first axis; in one it is the row
    // itself.
    const auto place = static_cast<std::size_t>(row * info.points[0] / rows);
    const double weight = info.points.size() == 1 ? 1.0 : weighting.rows[place];
    double length = 1;
    if (on_latitudes(info)) {
      const std::vector<double>& longitudes = info.coordinates[1];
      const double spacing = closed_ || longitudes.size() < 2
                                 ? 360.0 / static_cast<double>(columns_)
                                 : std::abs(longitudes[1] - longitudes[0]);
      length = earth_radius *
               std::max(0.0, std::cos(info.coordinates[0][place] * radians_per_degree)) * spacing *
               radians_per_degree * static_cast<double>(columns_);
    }
    row_factor_.push_back(weight * length / static_cast<double>(rows));
  }
}

PowerSpectrum::~PowerSpectrum() = default;

void PowerSpectrum::add(std::span<const float> field, std::span<double> sum) {
  expect(field.size() == values_.size() && sum.size() == size_,
         "a spectrum was asked of a field of another size");
  std::copy(field.begin(), field.end(), values_.begin());
  if (sphere_) {
    add_spherical(sum);
  } else {
    add_zonal(sum);
  }
}

void PowerSpectrum::add_spherical(std::span<double> sum) {
  std::vector<data::Complex> coefficients(static_cast<std::size_t>(sphere_->coefficients()));
  sphere_->analyse(values_, coefficients);
  for (std::int64_t degree = 0; degree < sphere_->degrees(); ++degree) {
    for (std::int64_t order = 0; order <= degree; ++order) {
      sum[static_cast<std::size_t>(degree)] +=
          (order == 0 ? 1 : 2) * std::norm(coefficients[sphere_->index(degree, order)]);
    }
  }
}

void PowerSpectrum::add_zonal(std::span<double> sum) {
  const auto columns = static_cast<std::size_t>(columns_);
  const std::size_t rows = row_factor_.size();
  if (!closed_) {
    const auto last = static_cast<double>(columns - 1);
    for (std::size_t row = 0; row < rows; ++row) {
      double* values = values_.data() + row * columns;
      const double slope = (values[columns - 1] - values[0]) / std::max(1.0, last);
      for (std::size_t i = 0; i < columns; ++i) {
        values[i] -= slope * (static_cast<double>(i) - 0.5 * last);
      }
    }
  }
  std::vector<data::Complex> spectrum(rows * size_);
  data::forward_real_rows(static_cast<std::int64_t>(rows), columns_, values_, spectrum);
  const double scale = 1.0 / (static_cast<double>(columns_) * static_cast<double>(columns_));
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t k = 0; k < size_; ++k) {
      const double twins = k == 0 || 2 * k == columns ? 1 : 2;
      sum[k] += row_factor_[row] * twins * scale * std::norm(spectrum[row * size_ + k]);
    }
  }
}

}  // namespace garonne::train
