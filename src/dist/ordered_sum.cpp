#include "dist/ordered_sum.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"

namespace garonne::dist {
namespace {

// Loops over blocks of this many elements have a known length, which is what compilers vectorise at
// any level of optimisation.
constexpr std::int64_t block_elements = 256;

template <typename Scalar>
void add_block(Scalar* __restrict sum, const Scalar* __restrict term) {
  for (std::int64_t index = 0; index < block_elements; ++index) sum[index] += term[index];
}

template <typename Scalar>
void add(Scalar* sum, const Scalar* term, std::int64_t elements) {
  std::int64_t begin = 0;
  for (; begin + block_elements <= elements; begin += block_elements) {
    add_block(sum + begin, term + begin);
  }
  for (; begin < elements; ++begin) sum[begin] += term[begin];
}

template <typename Scalar>
void sum_typed(Scalar* result, std::span<const void* const> terms, std::int64_t elements) {
  const auto term = [&](std::size_t index) { return static_cast<const Scalar*>(terms[index]); };
  // Addition commutes, bits included, so the first two may come in either order: with the result as
  // one of them there is nothing to copy.
  if (terms.size() >= 2 && (term(0) == result || term(1) == result)) {
    add(result, term(term(0) == result ? 1 : 0), elements);
    for (std::size_t index = 2; index < terms.size(); ++index) add(result, term(index), elements);
    return;
  }
  // Block by block through a sum of its own, which stays in the cache: the result may be a later
  // term.
  std::array<Scalar, block_elements * 4> sum;
  constexpr auto most = static_cast<std::int64_t>(sum.size());
  for (std::int64_t begin = 0; begin < elements; begin += most) {
    const std::int64_t count = std::min(most, elements - begin);
    std::copy_n(term(0) + begin, count, sum.data());
    for (std::size_t index = 1; index < terms.size(); ++index) {
      add(sum.data(), term(index) + begin, count);
    }
    std::copy_n(sum.data(), count, result + begin);
  }
}

}  // namespace

void sum_in_order(void* result, std::span<const void* const> terms, std::int64_t elements,
                  ScalarType type) {
  expect(!terms.empty(), "a sum has at least one term");
  if (type == ScalarType::Float32) {
    sum_typed(static_cast<float*>(result), terms, elements);
  } else {
    sum_typed(static_cast<double*>(result), terms, elements);
  }
}

}  // namespace garonne::dist
