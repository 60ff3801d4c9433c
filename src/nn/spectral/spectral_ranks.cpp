// How many columns the factors of spectral weights have.
#include <algorithm>
#include <cmath>
#include <vector>

#include "nn/spectral/spectral_contraction.hpp"

namespace garonne::nn {
namespace {

// TensorLy rounds halves to even, as the processor does.
std::int64_t rounded(double value) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::nearbyint(value)));
}

std::vector<double> dense_shape(const ContractionSizes& sizes) {
  std::vector<double> shape = {static_cast<double>(sizes.inputs),
                               static_cast<double>(sizes.outputs)};
  for (const std::int64_t kept : sizes.whole()) shape.push_back(static_cast<double>(kept));
  return shape;
}

}  // namespace

// Ranks in proportion c to the shape n, with c^d · ∏n + c · Σn² = rank · ∏n.
TuckerRanks tucker_ranks(const ContractionSizes& sizes, double rank) {
  const std::vector<double> shape = dense_shape(sizes);
  double dense = 1;
  double squares = 0;
  for (const double size : shape) {
    dense *= size;
    squares += size * size;
  }
  const auto excess = [&](double share) {
    return dense * std::pow(share, static_cast<double>(shape.size())) + squares * share -
           rank * dense;
  };
  double low = 0;
  double high = std::max(rank, 1.0);
  for (int halvings = 0; halvings < 200; ++halvings) {
    const double middle = (low + high) / 2;
    (excess(middle) < 0 ? low : high) = middle;
  }
  TuckerRanks ranks;
  ranks.inputs = rounded(shape[0] * high);
  ranks.outputs = rounded(shape[1] * high);
  for (std::size_t axis = 2; axis < shape.size(); ++axis)
    ranks.axes.push_back(rounded(shape[axis] * high));
  return ranks;
}

std::int64_t cp_rank(const ContractionSizes& sizes, double rank) {
  double dense = 1;
  double sum = 0;
  for (const double size : dense_shape(sizes)) {
    dense *= size;
    sum += size;
  }
  return rounded(dense * rank / sum);
}

}  // namespace garonne::nn
