#include "kernels/device/lamb_update.hpp"

#include "kernels/device/add_blocks.hpp"
#include "kernels/device/elementwise.hpp"
#include "kernels/device/reduction.hpp"
#include "kernels/device/single.hpp"
#include "kernels/device/spaces.hpp"
#include "kernels/device/write_parameters.hpp"
#include "kernels/lamb_step.hpp"

namespace garonne::kernels::device {

namespace {

KOKKOS_INLINE_FUNCTION const LambRates& rates_of(const Lamb& options) {
  return options.rates_place == nullptr ? options.rates : *options.rates_place;
}

template <typename T>
struct Update {
  T* parameter;
  T* first_moment;
  T* second_moment;
  const T* gradient;
  Lamb options;
  Scalar gradient_scale;
  BFloat16* copy;  // or null

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    const double scale = value_of(gradient_scale);
    if (!Kokkos::isfinite(scale)) return;
    const LambStep<T> step(options, rates_of(options), trust_of(options));
    Values<T, count> p;
    Values<T, count> m;
    Values<T, count> v;
    Values<T, count> slopes;
    read<count>(parameter + first, p);
    read<count>(first_moment + first, m);
    read<count>(second_moment + first, v);
    read<count>(gradient + first, slopes);
    for (int i = 0; i < count; ++i) {
      const T direction = step.direction(slopes[i], static_cast<T>(scale), p[i], m[i], v[i]);
      p[i] = p[i] - step.rate * direction;
    }
    write_parameters<count>(parameter, copy, first, p);
    write<count>(first_moment + first, m);
    write<count>(second_moment + first, v);
  }
};

// The squares of the directions of blocks of `length` elements: thread t of a team has the elements
// t, t + threads, … of its block.
template <typename T>
struct BlockSquares {
  const T* parameter;
  const T* first_moment;
  const T* second_moment;
  const T* gradient;
  Lamb options;
  Scalar gradient_scale;
  std::int64_t n;
  std::int64_t length;
  double* sums;  // [blocks]

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t block) const {
    const std::int64_t begin = block * length;
    const std::int64_t end = Kokkos::min(n, begin + length);
    const double scale = value_of(gradient_scale);
    const bool counts = Kokkos::isfinite(scale);
    const LambStep<T> step(options, rates_of(options), 1.0);
    double* const groups = team.template shared<double>(Team::groups);
    const double total = team.template sum<double>(groups, [&](int thread) {
      double sum = 0;
      for (std::int64_t i = begin + thread; counts && i < end; i += Team::threads) {
        T m = first_moment[i];
        T v = second_moment[i];
        const double direction =
            step.direction(gradient[i], static_cast<T>(scale), parameter[i], m, v);
        sum += direction * direction;
      }
      return sum;
    });
    team.each(1, [&](int) { sums[block] = total; });
  }
};

}  // namespace

void lamb_update(const Place& place, ElementType type, void* parameter, void* first_moment,
                 void* second_moment, const void* gradient, std::int64_t n, const Lamb& options,
                 const Scalar& gradient_scale, void* bfloat16_copy) {
  with_wide_type_and_space(place, type, "lamb_update", [&]<typename T>(T, const auto& space) {
    elementwise<pack<BFloat16>>(
        space, n,
        Update<T>{static_cast<T*>(parameter), static_cast<T*>(first_moment),
                  static_cast<T*>(second_moment), static_cast<const T*>(gradient), options,
                  gradient_scale, static_cast<BFloat16*>(bfloat16_copy)});
  });
}

void add_lamb_squares(const Place& place, ElementType type, const void* parameter,
                      const void* first_moment, const void* second_moment, const void* gradient,
                      std::int64_t n, const Lamb& options, const Scalar& gradient_scale,
                      double* total) {
  if (n <= 0) return;
  const std::int64_t length = squares_block(n);
  const std::int64_t blocks = (n + length - 1) / length;
  with_wide_type_and_space(place, type, "add_lamb_squares", [&]<typename T>(T, const auto& space) {
    add_sum_of_blocks(
        space, blocks,
        BlockSquares<T>{static_cast<const T*>(parameter), static_cast<const T*>(first_moment),
                        static_cast<const T*>(second_moment), static_cast<const T*>(gradient),
                        options, gradient_scale, n, length, place.scratch},
        place.scratch, total);
  });
}

}  // namespace garonne::kernels::device
