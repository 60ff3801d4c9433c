#include "kernels/device/instance_moments.hpp"

#include "kernels/device/elementwise.hpp"
#include "kernels/device/runs.hpp"
#include "kernels/device/spaces.hpp"

#include <numeric>

namespace garonne::kernels::device {

namespace {

// Of one channel of one sample, over all members.
struct Moments {
  double mean = 0;
  double variance = 0;
};

struct Gathered {
  static constexpr std::size_t most = 256;

  explicit Gathered(const GatheredMoments& given)
      : moments(given.moments),
        members(static_cast<std::int64_t>(given.counted.size())),
        statistics(given.batch * given.channels),
        epsilon(given.epsilon),
        all_points(static_cast<double>(
            std::accumulate(given.counted.begin(), given.counted.end(), std::int64_t{0}))) {
    expect(given.counted.size() <= most, "a device kernel takes the moments of " +
                                             std::to_string(most) + " members at most, not " +
                                             std::to_string(given.counted.size()));
    std::copy(given.counted.begin(), given.counted.end(), points);
  }

  KOKKOS_FUNCTION double counted(std::int64_t member) const {
    return static_cast<double>(points[member]);
  }
  // Mean (0) or squares (1) of a member; `i` counts channels of samples.
  KOKKOS_FUNCTION std::int64_t place(std::int64_t member, std::int64_t which,
                                     std::int64_t i) const {
    return (2 * member + which) * statistics + i;
  }
  KOKKOS_FUNCTION double at(std::int64_t member, std::int64_t which, std::int64_t i) const {
    return moments[place(member, which, i)];
  }
  KOKKOS_FUNCTION Moments moments_of(std::int64_t i) const {
    Moments all;
    for (std::int64_t member = 0; member < members; ++member)
      all.mean += counted(member) / all_points * at(member, 0, i);
    double squares = 0;
    for (std::int64_t member = 0; member < members; ++member) {
      const double beside = at(member, 0, i) - all.mean;
      squares += at(member, 1, i) + counted(member) * beside * beside;
    }
    all.variance = squares / all_points;
    return all;
  }
  KOKKOS_FUNCTION double inverse_deviation(const Moments& all) const {
    return 1 / Kokkos::sqrt(all.variance + epsilon);
  }

  const double* moments;
  std::int64_t members;
  std::int64_t statistics;
  double epsilon;
  double all_points;
  std::int64_t points[most];
};

template <typename G>
struct GatheredStatistics {
  Gathered gathered;
  G* mean;
  G* inverse_deviation;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t i) const {
    const Moments moments = gathered.moments_of(i);
    store_double(mean[i], moments.mean);
    store_double(inverse_deviation[i], gathered.inverse_deviation(moments));
  }
};

struct StatisticsGradient {
  Gathered gathered;
  const double* sums;
  const double* gain;
  double* gradient;
  std::int64_t channels;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t i) const {
    const std::int64_t b = i / channels;
    const std::int64_t c = i % channels;
    const Moments moments = gathered.moments_of(i);
    const double inverse = gathered.inverse_deviation(moments);
    const double by_mean = -inverse * gain[c] * sums[2 * b * channels + c];
    const double by_variance =
        -0.5 * inverse * inverse * gain[c] * sums[(2 * b + 1) * channels + c];
    for (std::int64_t member = 0; member < gathered.members; ++member) {
      const double share = gathered.counted(member) / gathered.all_points;
      const double beside = gathered.at(member, 0, i) - moments.mean;
      gradient[gathered.place(member, 0, i)] = share * (by_mean + 2 * by_variance * beside);
      gradient[gathered.place(member, 1, i)] = by_variance / gathered.all_points;
    }
  }
};

template <typename G>
struct ParameterGradients {
  const double* sums;
  G* gradient_gain;
  bool accumulate_gain;
  G* gradient_bias;
  bool accumulate_bias;
  std::int64_t batch;
  std::int64_t channels;

  KOKKOS_FUNCTION void add(std::int64_t which, std::int64_t c, G& out, bool accumulate) const {
    double sum = 0;
    for (std::int64_t b = 0; b < batch; ++b) sum += sums[(2 * b + which) * channels + c];
    const G added = static_cast<G>(sum);
    out = accumulate ? added + out : added;
  }

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t c) const {
    add(1, c, gradient_gain[c], accumulate_gain);
    add(0, c, gradient_bias[c], accumulate_bias);
  }
};

template <typename T>
struct MomentsGradient {
  using G = Accumulation<T>;

  const T* x;
  RunList runs;
  const double* moments;
  const double* gradient_moments;
  T* gradient_x;
  double counted;
  std::int64_t statistics;
  std::int64_t points;
  std::int64_t channels;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t i) const {
    if (!runs.has(i / channels % points)) {
      store(gradient_x[i], G{0});
      return;
    }
    const std::int64_t state = i / (channels * points) * channels + i % channels;
    T constant;
    store_double(constant, gradient_moments[state] / counted);
    const G mean = static_cast<G>(moments[state]);
    const G factor = static_cast<G>(2 * gradient_moments[statistics + state]);
    store(gradient_x[i], (load(x[i]) - mean) * factor + load(constant));
  }
};

}  // namespace

void gathered_statistics(const Place& place, ElementType type, const GatheredMoments& gathered,
                         void* mean, void* inverse_deviation) {
  with_wide_type_and_space(
      place, accumulation_type(type), "gathered_statistics", [&]<typename G>(G, const auto& space) {
        elementwise<1>(space, gathered.batch * gathered.channels,
                       GatheredStatistics<G>{Gathered(gathered), static_cast<G*>(mean),
                                             static_cast<G*>(inverse_deviation)});
      });
}

void gathered_statistics_gradient(const Place& place, const GatheredMoments& gathered,
                                  const double* sums, const double* gain, double* gradient) {
  with_space(place, [&](const auto& space) {
    elementwise<1>(space, gathered.batch * gathered.channels,
                   StatisticsGradient{Gathered(gathered), sums, gain, gradient, gathered.channels});
  });
}

void instance_parameter_gradients(const Place& place, ElementType type, const double* sums,
                                  void* gradient_gain, bool accumulate_gain, void* gradient_bias,
                                  bool accumulate_bias, std::int64_t batch, std::int64_t channels) {
  with_wide_type_and_space(
      place, accumulation_type(type), "instance_parameter_gradients",
      [&]<typename G>(G, const auto& space) {
        elementwise<1>(space, channels,
                       ParameterGradients<G>{sums, static_cast<G*>(gradient_gain), accumulate_gain,
                                             static_cast<G*>(gradient_bias), accumulate_bias, batch,
                                             channels});
      });
}

void instance_moments_gradient(const Place& place, ElementType type, const void* x,
                               std::span<const PointRun> runs, const double* moments,
                               const double* gradient_moments, void* gradient_x, std::int64_t batch,
                               std::int64_t points, std::int64_t channels) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    elementwise<1>(
        space, batch * points * channels,
        MomentsGradient<T>{static_cast<const T*>(x), run_list(runs), moments, gradient_moments,
                           static_cast<T*>(gradient_x), static_cast<double>(points_of(runs)),
                           batch * channels, points, channels});
  });
}

}  // namespace garonne::kernels::device
