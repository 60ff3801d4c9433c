// What ranks contribute to sums in tests, and what comes out of them.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/collective_bytes.hpp"
#include "dist/bfloat16.hpp"
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

// The sum as it travels in bfloat16, by another way of rounding than the one that is tested: what
// is left of a power of two below the value, to the nearest integer, ties to even.
inline float to_nearest_bfloat16(float value) {
  if (value == 0 || !std::isfinite(value)) return value;
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(value), &exponent);
  return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8));
}
inline std::vector<float> rounded(std::vector<float> values) {
  for (float& value : values) value = to_nearest_bfloat16(value);
  return values;
}
inline std::vector<float> narrow_contribution(int rank, std::int64_t elements, int salt = 0) {
  return rounded(contribution<float>(rank, elements, salt));
}

// Every term rounded, added in float32. What a node comes to is a term that is rounded, too.
inline std::vector<float> narrow_reference(const std::vector<int>& members, const SumOrder& order,
                                           std::int64_t elements, int salt = 0) {
  std::vector<std::vector<float>> nodes;
  for (const std::vector<int>& node : order.nodes) {
    std::vector<std::vector<float>> terms;
    for (const int member : node)
      terms.push_back(
          narrow_contribution(members[static_cast<std::size_t>(member)], elements, salt));
    nodes.push_back(added(terms));
    if (order.two_levels()) nodes.back() = rounded(nodes.back());
  }
  return added(nodes);
}
inline std::vector<float> narrow_reference(const std::vector<int>& members, std::int64_t elements,
                                           int salt = 0) {
  return narrow_reference(members, flat_order(static_cast<int>(members.size())), elements, salt);
}

// Of numbers that are bfloat16, and back.
inline std::vector<BFloat16> as_bfloat16(const std::vector<float>& values) {
  std::vector<BFloat16> result;
  for (const float value : values) result.push_back(narrowed(value));
  return result;
}
inline std::vector<float> as_float(const std::vector<BFloat16>& values) {
  std::vector<float> result;
  for (const BFloat16 value : values) result.push_back(widened(value));
  return result;
}

// Float32 that travels in BFloat16.
inline constexpr SumType narrow_sum{ScalarType::Float32, ScalarType::BFloat16};

template <typename Scalar>
constexpr ScalarType scalar_type = sizeof(Scalar) == 4 ? ScalarType::Float32 : ScalarType::Float64;

template <typename Scalar>
std::vector<Scalar> staging_for(std::int64_t elements, int members) {
  const auto bytes = all_reduce_staging_bytes(elements, sizeof(Scalar), members);
  return std::vector<Scalar>(static_cast<std::size_t>(bytes) / sizeof(Scalar), Scalar{-1});
}

}  // namespace garonne::dist
