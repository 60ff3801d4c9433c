// Steady flow through a porous square: −∇·(a ∇u) = f on [0, 1]², u = 0 at the boundary.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace garonne::data {

// Five-point finite differences on points × points nodes, boundary nodes included, h = 1/(points −
// 1); the coefficient between two nodes is their arithmetic mean. Solved directly (sparse LDLᵀ), so
// to rounding. Second order in h for a smooth coefficient.
class DarcySolver {
 public:
  // Throws ConfigError for fewer than 3 points. Analyses the matrix once for all coefficients.
  explicit DarcySolver(std::int64_t points);
  DarcySolver(DarcySolver&&) noexcept;
  DarcySolver& operator=(DarcySolver&&) noexcept;
  ~DarcySolver();

  std::int64_t points() const { return points_; }
  // u [points, points] for a [points, points], positive, and the constant f = force. RefusedError
  // for a coefficient with which the matrix is not positive definite.
  std::vector<double> solve(std::span<const double> coefficient, double force);

 private:
  struct Factors;
  std::int64_t points_;
  std::unique_ptr<Factors> factors_;
};

}  // namespace garonne::data
