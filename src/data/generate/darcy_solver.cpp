#include "data/generate/darcy_solver.hpp"

#include <fmt/format.h>

#include <Eigen/SparseCholesky>
#include <Eigen/SparseCore>

#include "base/error.hpp"

namespace garonne::data {
namespace {

using Matrix = Eigen::SparseMatrix<double>;

// Lower triangle of the matrix over the inner nodes, times h².
Matrix assemble(std::span<const double> a, std::int64_t points) {
  const std::int64_t inner = points - 2;
  const auto at = [&](std::int64_t i, std::int64_t j) {
    return a[static_cast<std::size_t>(i * points + j)];
  };
  std::vector<Eigen::Triplet<double>> entries;
  entries.reserve(static_cast<std::size_t>(3 * inner * inner));
  for (std::int64_t i = 1; i <= inner; ++i) {
    for (std::int64_t j = 1; j <= inner; ++j) {
      const double here = at(i, j);
      const double north = (here + at(i - 1, j)) / 2;
      const double south = (here + at(i + 1, j)) / 2;
      const double west = (here + at(i, j - 1)) / 2;
      const double east = (here + at(i, j + 1)) / 2;
      const auto row = static_cast<int>((i - 1) * inner + j - 1);
      entries.emplace_back(row, row, north + south + west + east);
      if (j > 1) entries.emplace_back(row, row - 1, -west);
      if (i > 1) entries.emplace_back(row, row - static_cast<int>(inner), -north);
    }
  }
  Matrix matrix(static_cast<Eigen::Index>(inner * inner), static_cast<Eigen::Index>(inner * inner));
  matrix.setFromTriplets(entries.begin(), entries.end());
  return matrix;
}

}  // namespace

struct DarcySolver::Factors {
  Eigen::SimplicialLDLT<Matrix, Eigen::Lower> ldlt;
};

DarcySolver::DarcySolver(std::int64_t points)
    : points_(points), factors_(std::make_unique<Factors>()) {
  if (points < 3 || points > 20000) {
    throw ConfigError("resolution", fmt::format("{}", points), "must be from 3 to 20000");
  }
  const std::vector<double> ones(static_cast<std::size_t>(points * points), 1.0);
  factors_->ldlt.analyzePattern(assemble(ones, points));
}

DarcySolver::DarcySolver(DarcySolver&&) noexcept = default;
DarcySolver& DarcySolver::operator=(DarcySolver&&) noexcept = default;
DarcySolver::~DarcySolver() = default;

std::vector<double> DarcySolver::solve(std::span<const double> coefficient, double force) {
  expect(static_cast<std::int64_t>(coefficient.size()) == points_ * points_,
         "Darcy: the coefficient does not have points × points values");
  const std::int64_t inner = points_ - 2;
  const double h = 1.0 / static_cast<double>(points_ - 1);
  factors_->ldlt.factorize(assemble(coefficient, points_));
  if (factors_->ldlt.info() != Eigen::Success) {
    throw RefusedError("the coefficient of a Darcy flow must be positive and finite everywhere");
  }
  const Eigen::VectorXd solution =
      factors_->ldlt.solve(Eigen::VectorXd::Constant(inner * inner, force * h * h));
  std::vector<double> u(coefficient.size(), 0.0);
  for (std::int64_t i = 0; i < inner; ++i) {
    for (std::int64_t j = 0; j < inner; ++j) {
      u[static_cast<std::size_t>((i + 1) * points_ + j + 1)] = solution[i * inner + j];
    }
  }
  return u;
}

}  // namespace garonne::data
