#include "kernels/device/optimizer_update.hpp"

#include "kernels/adamw_step.hpp"
#include "kernels/device/elementwise.hpp"
#include "kernels/device/single.hpp"
#include "kernels/device/spaces.hpp"
#include "kernels/device/write_parameters.hpp"

namespace garonne::kernels::device {

namespace {

template <typename T>
struct Update {
  T* parameter;
  T* first_moment;
  T* second_moment;
  const T* gradient;
  AdamW options;
  AdamWRates rates;  // where options has no place of them
  Scalar gradient_scale;
  BFloat16* copy;  // or null

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    const double scale = value_of(gradient_scale);
    if (!Kokkos::isfinite(scale)) return;
    if constexpr (count == 1) {
      // What is left over: whole pairs, of which one thread has both.
      if (options.pairs && first % 2 == 0) update<2>(first, static_cast<T>(scale));
      if (options.pairs) return;
    }
    update<count>(first, static_cast<T>(scale));
  }

  template <int count>
  KOKKOS_FUNCTION void update(std::int64_t first, T scale) const {
    const AdamWStep<T> step(options, options.rates == nullptr ? rates : *options.rates);
    Values<T, count> p;
    Values<T, count> m;
    Values<T, count> v;
    Values<T, count> slopes;
    Values<T, count> squares;
    read<count>(parameter + first, p);
    read<count>(first_moment + first, m);
    read<count>(second_moment + first, v);
    read<count>(gradient + first, slopes);
    for (int i = 0; i < count; ++i) {
      slopes[i] = step.slope(slopes[i], scale, p[i]);
      squares[i] = slopes[i] * slopes[i];
    }
    if (options.pairs) {
      for (int i = 0; i + 1 < count; i += 2)
        squares[i] = squares[i + 1] = squares[i] + squares[i + 1];
    }
    for (int i = 0; i < count; ++i) step.update(slopes[i], squares[i], p[i], m[i], v[i]);
    write_parameters<count>(parameter, copy, first, p);
    write<count>(first_moment + first, m);
    write<count>(second_moment + first, v);
  }
};

}  // namespace

void adamw_update(const Place& place, ElementType type, void* parameter, void* first_moment,
                  void* second_moment, const void* gradient, std::int64_t n, const AdamW& options,
                  const Scalar& gradient_scale, void* bfloat16_copy) {
  expect(!options.pairs || n % 2 == 0, "half of a complex number is left over");
  with_wide_type_and_space(place, type, "adamw_update", [&]<typename T>(T, const auto& space) {
    elementwise<pack<BFloat16>>(
        space, n,
        Update<T>{static_cast<T*>(parameter), static_cast<T*>(first_moment),
                  static_cast<T*>(second_moment), static_cast<const T*>(gradient), options,
                  options.rates == nullptr ? adamw_rates(options) : AdamWRates{}, gradient_scale,
                  static_cast<BFloat16*>(bfloat16_copy)});
  });
}

}  // namespace garonne::kernels::device
