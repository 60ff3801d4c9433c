#include "base/sphere_grid.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "base/error.hpp"

namespace garonne {
namespace {

// Arithmetic beyond double where the processor has it: the roots and weights then are the nearest
// doubles or near them.
using Wide = long double;
constexpr Wide pi = std::numbers::pi_v<Wide>;

struct Polynomial {
  Wide value;
  Wide derivative;
};

// The Legendre polynomial of a degree >= 1 at |x| < 1, by Bonnet's recurrence.
Polynomial legendre_polynomial(std::int64_t degree, Wide x) {
  Wide before = 1;
  Wide value = x;
  for (std::int64_t l = 2; l <= degree; ++l) {
    const Wide next = ((2 * l - 1) * x * value - (l - 1) * before) / l;
    before = value;
    value = next;
  }
  return {value, degree * (before - x * value) / ((1 - x) * (1 + x))};
}

void set_row(SphereGrid& grid, std::int64_t row, Wide colatitude, Wide cosine, Wide sine,
             Wide weight) {
  const auto north = static_cast<std::size_t>(row);
  const auto south = static_cast<std::size_t>(grid.latitudes - 1 - row);
  grid.colatitudes[south] = static_cast<double>(pi - colatitude);
  grid.colatitudes[north] = static_cast<double>(colatitude);
  grid.cosines[south] = -static_cast<double>(cosine);
  grid.cosines[north] = static_cast<double>(cosine);
  grid.sines[south] = grid.sines[north] = static_cast<double>(sine);
  grid.weights[south] = grid.weights[north] = static_cast<double>(weight);
}

// Newton's iteration from Tricomi's estimate of the roots.
void set_legendre_gauss(SphereGrid& grid) {
  const std::int64_t count = grid.latitudes;
  for (std::int64_t row = 0; row < (count + 1) / 2; ++row) {
    const bool middle = 2 * row + 1 == count;
    Wide x = middle ? 0 : std::cos(pi * (4 * row + 3) / (4 * count + 2));
    Polynomial polynomial = legendre_polynomial(count, x);
    for (int iteration = 0; !middle && iteration < 10; ++iteration) {
      const Wide step = polynomial.value / polynomial.derivative;
      x -= step;
      polynomial = legendre_polynomial(count, x);
      if (std::abs(step) < Wide{1e-17}) break;
    }
    const Wide squared_sine = (1 - x) * (1 + x);
    const Wide weight = 2 / (squared_sine * polynomial.derivative * polynomial.derivative);
    set_row(grid, row, std::acos(x), x, std::sqrt(squared_sine), weight);
  }
}

// Weights of Clenshaw and Curtis (1960): the integral of the interpolant in cosines.
void set_equiangular(SphereGrid& grid) {
  const std::int64_t intervals = grid.latitudes - 1;
  for (std::int64_t row = 0; row < (grid.latitudes + 1) / 2; ++row) {
    Wide sum = 1;
    for (std::int64_t j = 1; 2 * j <= intervals; ++j) {
      // The angle reduced by whole turns as integers, so that it is as exact for late terms.
      const Wide angle = 2 * pi * ((j * row) % intervals) / intervals;
      const Wide share = 2 * j == intervals ? 1 : 2;
      sum -= share * std::cos(angle) / (4 * j * j - 1);
    }
    const bool pole = row == 0;
    const bool middle = 2 * row == intervals;
    const Wide colatitude = pi * row / intervals;
    set_row(grid, row, colatitude, middle ? 0 : std::cos(colatitude), std::sin(colatitude),
            sum * (pole ? 1 : 2) / intervals);
  }
}

// Weights of Fejér's first rule (1933): the integral of the interpolant in cosines whose nodes are
// the zeros of a Chebyshev polynomial.
void set_midpoints(SphereGrid& grid) {
  const std::int64_t count = grid.latitudes;
  for (std::int64_t row = 0; row < (count + 1) / 2; ++row) {
    const std::int64_t odd = 2 * row + 1;
    Wide sum = 1;
    for (std::int64_t j = 1; 2 * j <= count; ++j) {
      // As above: of 2 j times the colatitude, in halves of a band.
      const Wide angle = pi * ((j * odd) % (2 * count)) / count;
      sum -= 2 * std::cos(angle) / (4 * j * j - 1);
    }
    const bool middle = odd == count;
    const Wide colatitude = pi * odd / (2 * count);
    set_row(grid, row, colatitude, middle ? 0 : std::cos(colatitude), std::sin(colatitude),
            2 * sum / count);
  }
}

constexpr SphereGridKind all_kinds[] = {SphereGridKind::Equiangular,
                                        SphereGridKind::EquiangularMidpoints,
                                        SphereGridKind::LegendreGauss};

}  // namespace

std::string sphere_grid_name(SphereGridKind kind) {
  switch (kind) {
    case SphereGridKind::Equiangular:
      return "equiangular";
    case SphereGridKind::EquiangularMidpoints:
      return "equiangular-midpoints";
    default:
      return "legendre-gauss";
  }
}

bool is_sphere_grid(std::string_view name) {
  return std::any_of(std::begin(all_kinds), std::end(all_kinds),
                     [&](SphereGridKind kind) { return name == sphere_grid_name(kind); });
}

SphereGridKind sphere_grid_kind(const std::string& key, const std::string& name) {
  for (const SphereGridKind kind : all_kinds) {
    if (name == sphere_grid_name(kind)) return kind;
  }
  throw ConfigError(key, name, "must be equiangular, equiangular-midpoints or legendre-gauss");
}

SphereGrid make_sphere_grid(SphereGridKind kind, std::int64_t latitudes, std::int64_t longitudes) {
  if (latitudes < 2 || longitudes < 1) {
    throw ConfigError("a grid on the sphere of " + std::to_string(latitudes) + " × " +
                      std::to_string(longitudes) +
                      " points: it needs at least 2 latitudes and 1 longitude");
  }
  SphereGrid grid{kind, latitudes, longitudes, {}, {}, {}, {}};
  for (auto* values : {&grid.colatitudes, &grid.cosines, &grid.sines, &grid.weights}) {
    values->resize(static_cast<std::size_t>(latitudes));
  }
  switch (kind) {
    case SphereGridKind::Equiangular:
      set_equiangular(grid);
      break;
    case SphereGridKind::EquiangularMidpoints:
      set_midpoints(grid);
      break;
    default:
      set_legendre_gauss(grid);
  }
  return grid;
}

std::int64_t exact_degrees(SphereGridKind kind, std::int64_t latitudes) {
  return kind == SphereGridKind::LegendreGauss ? latitudes : (latitudes + 1) / 2;
}

std::vector<double> mean_one_weights(const SphereGrid& grid) {
  std::vector<double> weights = grid.weights;
  for (double& weight : weights) weight *= static_cast<double>(grid.latitudes) / 2;
  return weights;
}

}  // namespace garonne
