#include "kernels/device/dropout.hpp"

#include "kernels/device/combine.hpp"
#include "kernels/device/random_words.hpp"
#include "kernels/device/spaces.hpp"

namespace garonne::kernels::device {

namespace {

// Of numbers that are not negative; in 32 bits where they have no more, which takes a fifth.
KOKKOS_INLINE_FUNCTION std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
  return a / b;
}

// `of_groups`: samples are of whole groups of four random words, and so is what a thread has.
template <typename T, bool of_groups>
struct DropoutAdd {
  const T* residual;
  const T* x;
  T* out;
  Dropout dropout;
  const std::int64_t* samples;
  std::int64_t elements_per_sample;

  // Elements of one sample, which begins at `begin`.
  template <int count>
  KOKKOS_FUNCTION void add(std::int64_t first, std::int64_t sample, std::int64_t in_sample) const {
    using G = Accumulation<T>;
    Values<G, count> values;
    const auto fetched = fetch<count>(x + first);
    // Without one something that is there, and is not looked at.
    const auto base = fetch<count>((residual == nullptr ? x : residual) + first);
    unpack<count>(fetched, values);
    drop<count, of_groups && count % 4 == 0>(dropout, samples[sample], in_sample, values);
    if (residual != nullptr) {
      Values<G, count> sums;
      unpack<count>(base, sums);
      for (int i = 0; i < count; ++i) values[i] = sums[i] + values[i];
    }
    write<count>(out + first, values);
  }

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    std::int64_t sample = quotient(dropout.first_element + first, elements_per_sample);
    std::int64_t in_sample = dropout.first_element + first - sample * elements_per_sample;
    if ((of_groups && count % 4 == 0) || in_sample + count <= elements_per_sample)
      return add<count>(first, sample, in_sample);
    for (int i = 0; i < count; ++i) {
      add<1>(first + i, sample, in_sample);
      if (++in_sample == elements_per_sample) {
        in_sample = 0;
        ++sample;
      }
    }
  }
};

// Of nothing that is dropped.
template <typename T>
struct Sum {
  const T* residual;
  const T* x;
  T* out;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    Values<Accumulation<T>, count> values;
    Values<Accumulation<T>, count> sums;
    const auto fetched = fetch<count>(x + first);
    const auto base = fetch<count>(residual + first);
    unpack<count>(fetched, values);
    unpack<count>(base, sums);
    for (int i = 0; i < count; ++i) sums[i] = sums[i] + values[i];
    write<count>(out + first, sums);
  }
};

}  // namespace

void dropout_add(const Place& place, ElementType type, const void* residual, const void* x,
                 void* out, const Dropout& dropout, const std::int64_t* samples,
                 std::int64_t elements, std::int64_t elements_per_sample) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    const auto* const from = static_cast<const T*>(x);
    auto* const to = static_cast<T*>(out);
    if (dropout.threshold == 0) {
      if (residual == nullptr) return combine<T, T>(space, x, out, elements, /*accumulate=*/false);
      return elementwise<pack<T>>(space, elements,
                                  Sum<T>{static_cast<const T*>(residual), from, to});
    }
    // Whole groups of four random words.
    constexpr int width = pack<T> < 4 ? 4 : pack<T>;
    const auto* const base = static_cast<const T*>(residual);
    if (dropout.first_element % width == 0 && elements_per_sample % width == 0) {
      elementwise<width>(
          space, elements,
          DropoutAdd<T, true>{base, from, to, dropout, samples, elements_per_sample});
    } else {
      elementwise<width, 2>(
          space, elements,
          DropoutAdd<T, false>{base, from, to, dropout, samples, elements_per_sample});
    }
  });
}

}  // namespace garonne::kernels::device
