#include "dist/ordered_sum.hpp"

#include <algorithm>
#include <array>
#include <type_traits>

#include "base/error.hpp"
#include "dist/bfloat16.hpp"

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

// Calls `work(begin, count)` for blocks: of the known length, which is then part of the type of
// `count`, and of what is left.
template <typename Work>
void for_blocks(std::int64_t elements, Work work) {
  std::int64_t begin = 0;
  for (; begin + block_elements <= elements; begin += block_elements)
    work(begin, std::integral_constant<std::int64_t, block_elements>());
  if (begin < elements) work(begin, elements - begin);
}

template <typename Count>
void widen_block(float* __restrict to, const BFloat16* __restrict from, Count count) {
  for (std::int64_t index = 0; index < count; ++index) to[index] = widened(from[index]);
}
template <typename Count>
void add_widened_block(float* __restrict sum, const BFloat16* __restrict term, Count count) {
  for (std::int64_t index = 0; index < count; ++index) sum[index] += widened(term[index]);
}
template <typename Count>
void narrow_block(BFloat16* __restrict to, const float* __restrict from, Count count) {
  for (std::int64_t index = 0; index < count; ++index) to[index] = narrowed(from[index]);
}

// Of terms in BFloat16, but for the result's own where that is kept in Float32.
void sum_narrow(void* result, std::span<const void* const> terms, std::int64_t elements,
                ScalarType kept) {
  std::array<float, block_elements> sum{};
  std::array<BFloat16, block_elements> rounded{};
  for_blocks(elements, [&](std::int64_t begin, auto count) {
    for (std::size_t index = 0; index < terms.size(); ++index) {
      const BFloat16* term = rounded.data();
      if (terms[index] == result && kept == ScalarType::Float32) {
        narrow_block(rounded.data(), static_cast<const float*>(terms[index]) + begin, count);
      } else {
        term = static_cast<const BFloat16*>(terms[index]) + begin;
      }
      if (index == 0) {
        widen_block(sum.data(), term, count);
      } else {
        add_widened_block(sum.data(), term, count);
      }
    }
    if (kept == ScalarType::Float32) {
      std::copy_n(sum.data(), std::int64_t{count}, static_cast<float*>(result) + begin);
    } else {
      narrow_block(static_cast<BFloat16*>(result) + begin, sum.data(), count);
    }
  });
}

}  // namespace

void sum_in_order(void* result, std::span<const void* const> terms, std::int64_t elements,
                  SumType type) {
  expect(!terms.empty(), "a sum has at least one term");
  if (type.wire == ScalarType::BFloat16) {
    sum_narrow(result, terms, elements, type.kept);
  } else if (type.kept == ScalarType::Float32) {
    sum_typed(static_cast<float*>(result), terms, elements);
  } else {
    sum_typed(static_cast<double*>(result), terms, elements);
  }
}

void narrow(void* bfloat16, const void* float32, std::int64_t elements) {
  for_blocks(elements, [&](std::int64_t begin, auto count) {
    narrow_block(static_cast<BFloat16*>(bfloat16) + begin,
                 static_cast<const float*>(float32) + begin, count);
  });
}

void widen(void* float32, const void* bfloat16, std::int64_t elements) {
  for_blocks(elements, [&](std::int64_t begin, auto count) {
    widen_block(static_cast<float*>(float32) + begin,
                static_cast<const BFloat16*>(bfloat16) + begin, count);
  });
}

}  // namespace garonne::dist
