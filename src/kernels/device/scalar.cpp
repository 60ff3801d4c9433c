#include "kernels/device/scalar.hpp"

#include "kernels/device/single.hpp"
#include "kernels/device/spaces.hpp"

#include <algorithm>
#include <limits>

namespace garonne::kernels::device {

namespace {

// As many as a launch takes along; more come in several.
constexpr std::size_t numbers_at_once = 64;

struct AddNumbers {
  Scalar numbers[numbers_at_once];
  std::size_t count;
  double* running;
  bool begins;
  double* mean;  // null before the end
  double all;

  KOKKOS_FUNCTION void operator()() const {
    double sum = begins ? 0.0 : *running;
    for (std::size_t i = 0; i < count; ++i) sum += value_of(numbers[i]);
    if (mean == nullptr) {
      *running = sum;
    } else {
      *mean = sum / all;
    }
  }
};

struct Divide {
  Scalar outer;
  double count;
  double* gradient;

  KOKKOS_FUNCTION void operator()() const { *gradient = value_of(outer) / count; }
};

struct AddScaled {
  Scalar number;
  double factor;
  double* sum;

  KOKKOS_FUNCTION void operator()() const { *sum += value_of(number) * factor; }
};

struct ClipScale {
  const double* loss;
  const double* squares;
  double clip_norm;
  double* norm;
  double* scale;
  double none;  // no number

  KOKKOS_FUNCTION void operator()() const {
    const double size = Kokkos::sqrt(*squares);
    *norm = size;
    if (!Kokkos::isfinite(*loss) || !Kokkos::isfinite(size)) {
      *scale = none;
    } else if (clip_norm <= 0) {
      *scale = 1.0;
    } else {
      const double clipped = clip_norm / (size + 1e-6);
      *scale = clipped < 1.0 ? clipped : 1.0;
    }
  }
};

}  // namespace

void mean_of(const Place& place, std::span<const Scalar> numbers, double* mean) {
  with_space(place, [&](const auto& space) {
    for (std::size_t first = 0; first < numbers.size(); first += numbers_at_once) {
      AddNumbers kernel{};
      kernel.count = std::min(numbers_at_once, numbers.size() - first);
      std::copy_n(numbers.begin() + static_cast<std::ptrdiff_t>(first), kernel.count,
                  kernel.numbers);
      kernel.running = place.scratch;
      kernel.begins = first == 0;
      kernel.mean = first + kernel.count == numbers.size() ? mean : nullptr;
      kernel.all = static_cast<double>(numbers.size());
      single(space, kernel);
    }
  });
}

void mean_of_gradient(const Place& place, const Scalar& outer, std::int64_t count,
                      double* gradient) {
  with_space(place, [&](const auto& space) {
    single(space, Divide{outer, static_cast<double>(count), gradient});
  });
}

void add_scaled(const Place& place, const Scalar& number, double factor, double* sum) {
  with_space(place, [&](const auto& space) { single(space, AddScaled{number, factor, sum}); });
}

void clip_scale(const Place& place, const double* loss, const double* squares, double clip_norm,
                double* norm, double* scale) {
  with_space(place, [&](const auto& space) {
    single(space, ClipScale{loss, squares, clip_norm, norm, scale,
                            std::numeric_limits<double>::quiet_NaN()});
  });
}

}  // namespace garonne::kernels::device
