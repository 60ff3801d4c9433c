// What ranks contribute to sums in tests, and what comes out of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/collective_bytes.hpp"
#include "dist/sum_order.hpp"

namespace garonne::dist {

// Of very different magnitudes, so that another order of the sum has other bits.
template <typename Scalar>
std::vector<Scalar> contribution(int rank, std::int64_t elements, int salt = 0) {
  std::vector<Scalar> values(static_cast<std::size_t>(elements));
  auto state = static_cast<std::uint64_t>(1 + rank + 64 * salt);
  state *= 0x9E3779B97F4A7C15U;
  constexpr std::uint64_t magnitudes = sizeof(Scalar) == 4 ? 24 : 60;
  for (Scalar& value : values) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const double fraction = static_cast<double>(state >> 40) / (1 << 24) - 0.5;
    value = static_cast<Scalar>(std::ldexp(fraction, static_cast<int>((state >> 33) % magnitudes)));
  }
  return values;
}

// One after the other.
template <typename Scalar>
std::vector<Scalar> added(const std::vector<std::vector<Scalar>>& terms) {
  std::vector<Scalar> sum = terms[0];
  for (std::size_t term = 1; term < terms.size(); ++term) {
    for (std::size_t index = 0; index < sum.size(); ++index) sum[index] += terms[term][index];
  }
  return sum;
}

template <typename Scalar>
std::vector<Scalar> reference(const std::vector<int>& members, std::int64_t elements,
                              int salt = 0) {
  std::vector<std::vector<Scalar>> terms;
  for (const int member : members) terms.push_back(contribution<Scalar>(member, elements, salt));
  return added(terms);
}

// Within the nodes, then over them.
template <typename Scalar>
std::vector<Scalar> reference(const std::vector<int>& members, const SumOrder& order,
                              std::int64_t elements, int salt = 0) {
  std::vector<std::vector<Scalar>> nodes;
  for (const std::vector<int>& node : order.nodes) {
    std::vector<std::vector<Scalar>> terms;
    for (const int member : node) {
      terms.push_back(
          contribution<Scalar>(members[static_cast<std::size_t>(member)], elements, salt));
    }
    nodes.push_back(added(terms));
  }
  return added(nodes);
}

template <typename Scalar>
bool equal_bits(const std::vector<Scalar>& left, const std::vector<Scalar>& right) {
  return left.size() == right.size() &&
         (left.empty() ||
          std::memcmp(left.data(), right.data(), left.size() * sizeof(Scalar)) == 0);
}

template <typename Scalar>
constexpr ScalarType scalar_type = sizeof(Scalar) == 4 ? ScalarType::Float32 : ScalarType::Float64;

template <typename Scalar>
std::vector<Scalar> staging_for(std::int64_t elements, int members) {
  const auto bytes = all_reduce_staging_bytes(elements, sizeof(Scalar), members);
  return std::vector<Scalar>(static_cast<std::size_t>(bytes) / sizeof(Scalar), Scalar{-1});
}

}  // namespace garonne::dist
