#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/error.hpp"

namespace garonne {

// Of an even number of values the mean of the two in the middle; of none InternalError.
inline double median(std::vector<double> values) {
  expect(!values.empty(), "nothing has no median");
  std::ranges::sort(values);
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

// The same, but of an even number of values the higher of the two in the middle: one that was
// measured.
inline double high_median(std::vector<double> values) {
  expect(!values.empty(), "nothing has no median");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace garonne
