#include "kernels/device/momentum_update.hpp"

#include "kernels/device/elementwise.hpp"
#include "kernels/device/single.hpp"
#include "kernels/device/spaces.hpp"
#include "kernels/device/write_parameters.hpp"
#include "kernels/momentum_step.hpp"

namespace garonne::kernels::device {

namespace {

template <typename T>
struct Update {
  T* parameter;
  T* moment;
  const T* gradient;
  Momentum options;
  Scalar learning_rate;
  Scalar gradient_scale;
  BFloat16* copy;  // or null

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    const double scale = value_of(gradient_scale);
    if (!Kokkos::isfinite(scale)) return;
    const MomentumStep<T> step(options, value_of(learning_rate), scale);
    Values<T, count> p;
    Values<T, count> m;
    Values<T, count> slopes;
    read<count>(parameter + first, p);
    read<count>(moment + first, m);
    read<count>(gradient + first, slopes);
    for (int i = 0; i < count; ++i) step.update(slopes[i], static_cast<T>(scale), p[i], m[i]);
    write_parameters<count>(parameter, copy, first, p);
    write<count>(moment + first, m);
  }
};

}  // namespace

void momentum_update(const Place& place, ElementType type, void* parameter, void* moment,
                     const void* gradient, std::int64_t n, const Momentum& options,
                     const Scalar& learning_rate, const Scalar& gradient_scale,
                     void* bfloat16_copy) {
  with_wide_type_and_space(place, type, "momentum_update", [&]<typename T>(T, const auto& space) {
    elementwise<pack<BFloat16>>(space, n,
                                Update<T>{static_cast<T*>(parameter), static_cast<T*>(moment),
                                          static_cast<const T*>(gradient), options, learning_rate,
                                          gradient_scale, static_cast<BFloat16*>(bfloat16_copy)});
  });
}

}  // namespace garonne::kernels::device
