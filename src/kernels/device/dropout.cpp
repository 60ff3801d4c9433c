#include "kernels/device/dropout.hpp"

#include "kernels/device/random_words.hpp"
#include "kernels/device/spaces.hpp"

namespace garonne::kernels::device {

namespace {

template <typename T>
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
    read<count>(x + first, values);
    const std::int64_t number = dropout.threshold == 0 ? 0 : samples[sample];
    drop<count>(dropout, number, in_sample, values);
    if (residual != nullptr) {
      Values<G, count> base;
      read<count>(residual + first, base);
      for (int i = 0; i < count; ++i) values[i] = base[i] + values[i];
    }
    write<count>(out + first, values);
  }

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    std::int64_t sample = (dropout.first_element + first) / elements_per_sample;
    std::int64_t in_sample = dropout.first_element + first - sample * elements_per_sample;
    if (in_sample + count <= elements_per_sample) return add<count>(first, sample, in_sample);
    for (int i = 0; i < count; ++i) {
      add<1>(first + i, sample, in_sample);
      if (++in_sample == elements_per_sample) {
        in_sample = 0;
        ++sample;
      }
    }
  }
};

}  // namespace

void dropout_add(const Place& place, ElementType type, const void* residual, const void* x,
                 void* out, const Dropout& dropout, const std::int64_t* samples,
                 std::int64_t elements, std::int64_t elements_per_sample) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    // Whole groups of four random words.
    constexpr int width = pack<T> < 4 ? 4 : pack<T>;
    elementwise<width>(space, elements,
                       DropoutAdd<T>{static_cast<const T*>(residual), static_cast<const T*>(x),
                                     static_cast<T*>(out), dropout, samples, elements_per_sample});
  });
}

}  // namespace garonne::kernels::device
