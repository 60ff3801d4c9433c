#include "kernels/instance_moments.hpp"

#include "kernels/device/instance_moments.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/instance_norm.hpp"
#include "kernels/with_type.hpp"

#include <cmath>
#include <cstring>
#include <numeric>

namespace garonne::kernels {

namespace {

// Of one channel of one sample, over all members.
struct Moments {
  double mean = 0;
  double variance = 0;
};

class Gathered {
 public:
  explicit Gathered(const GatheredMoments& given)
      : given_(given),
        all_points_(static_cast<double>(
            std::accumulate(given.counted.begin(), given.counted.end(), std::int64_t{0}))) {}

  std::int64_t members() const { return static_cast<std::int64_t>(given_.counted.size()); }
  double all_points() const { return all_points_; }
  double counted(std::int64_t member) const {
    return static_cast<double>(given_.counted[static_cast<std::size_t>(member)]);
  }
  // Mean (0) or squares (1) of a member; `i` counts channels of samples.
  std::int64_t place(std::int64_t member, std::int64_t which, std::int64_t i) const {
    return (2 * member + which) * given_.batch * given_.channels + i;
  }
  double at(std::int64_t member, std::int64_t which, std::int64_t i) const {
    return given_.moments[place(member, which, i)];
  }

  Moments moments_of(std::int64_t i) const {
    Moments all;
    for (std::int64_t member = 0; member < members(); ++member)
      all.mean += counted(member) / all_points_ * at(member, 0, i);
    double squares = 0;
    for (std::int64_t member = 0; member < members(); ++member) {
      const double beside = at(member, 0, i) - all.mean;
      squares += at(member, 1, i) + counted(member) * beside * beside;
    }
    all.variance = squares / all_points_;
    return all;
  }
  double inverse_deviation(const Moments& moments) const {
    return 1 / std::sqrt(moments.variance + given_.epsilon);
  }

 private:
  const GatheredMoments& given_;
  double all_points_;
};

}  // namespace

void gathered_statistics(const Queue& queue, ElementType type, const GatheredMoments& gathered,
                         void* mean, void* inverse_deviation) {
  const auto on_device = [&](const auto& place) {
    device::gathered_statistics(place, type, gathered, mean, inverse_deviation);
  };
  if (put_on_device(queue, on_device)) return;
  const Gathered all(gathered);
  with_type(accumulation_type(type), [&]<typename G>(G) {
    for (std::int64_t i = 0; i < gathered.batch * gathered.channels; ++i) {
      const Moments moments = all.moments_of(i);
      store_double(static_cast<G*>(mean)[i], moments.mean);
      store_double(static_cast<G*>(inverse_deviation)[i], all.inverse_deviation(moments));
    }
  });
}

void gathered_statistics_gradient(const Queue& queue, const GatheredMoments& gathered,
                                  const double* sums, const double* gain, double* gradient) {
  const auto on_device = [&](const auto& place) {
    device::gathered_statistics_gradient(place, gathered, sums, gain, gradient);
  };
  if (put_on_device(queue, on_device)) return;
  const Gathered all(gathered);
  for (std::int64_t b = 0; b < gathered.batch; ++b) {
    for (std::int64_t c = 0; c < gathered.channels; ++c) {
      const std::int64_t i = b * gathered.channels + c;
      const Moments moments = all.moments_of(i);
      const double inverse = all.inverse_deviation(moments);
      const double by_mean = -inverse * gain[c] * sums[2 * b * gathered.channels + c];
      const double by_variance =
          -0.5 * inverse * inverse * gain[c] * sums[(2 * b + 1) * gathered.channels + c];
      for (std::int64_t member = 0; member < all.members(); ++member) {
        const double share = all.counted(member) / all.all_points();
        const double beside = all.at(member, 0, i) - moments.mean;
        gradient[all.place(member, 0, i)] = share * (by_mean + 2 * by_variance * beside);
        gradient[all.place(member, 1, i)] = by_variance / all.all_points();
      }
    }
  }
}

void instance_parameter_gradients(const Queue& queue, ElementType type, const double* sums,
                                  void* gradient_gain, bool accumulate_gain, void* gradient_bias,
                                  bool accumulate_bias, std::int64_t batch, std::int64_t channels) {
  const auto on_device = [&](const auto& place) {
    device::instance_parameter_gradients(place, type, sums, gradient_gain, accumulate_gain,
                                         gradient_bias, accumulate_bias, batch, channels);
  };
  if (put_on_device(queue, on_device)) return;
  with_type(accumulation_type(type), [&]<typename G>(G) {
    const auto add_up = [&](std::int64_t which, void* target, bool accumulate) {
      G* const out = static_cast<G*>(target);
      for (std::int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (std::int64_t b = 0; b < batch; ++b) sum += sums[(2 * b + which) * channels + c];
        G added{};
        store_double(added, sum);
        store(out[c], load(added) + (accumulate ? load(out[c]) : 0));
      }
    };
    add_up(1, gradient_gain, accumulate_gain);
    add_up(0, gradient_bias, accumulate_bias);
  });
}

void instance_moments_gradient(const Queue& queue, ElementType type, const void* x,
                               std::span<const PointRun> runs, const double* moments,
                               const double* gradient_moments, void* gradient_x,
                               const InstanceMomentsWorkspace& workspace, std::int64_t batch,
                               std::int64_t points, std::int64_t channels) {
  const auto on_device = [&](const auto& place) {
    device::instance_moments_gradient(place, type, x, runs, moments, gradient_moments, gradient_x,
                                      batch, points, channels);
  };
  if (put_on_device(queue, on_device)) return;
  const std::int64_t statistics = batch * channels;
  double counted = 0;
  for (const PointRun& run : runs) counted += static_cast<double>(run.count);
  with_type(accumulation_type(type), [&]<typename G>(G) {
    for (std::int64_t i = 0; i < statistics; ++i) {
      store_double(static_cast<G*>(workspace.mean)[i], moments[i]);
      store_double(static_cast<G*>(workspace.factor)[i], 2 * gradient_moments[statistics + i]);
    }
  });
  with_type(type, [&]<typename T>(T) {
    for (std::int64_t i = 0; i < statistics; ++i)
      store_double(static_cast<T*>(workspace.constant)[i], gradient_moments[i] / counted);
    for (std::int64_t c = 0; c < channels; ++c) store_double(static_cast<T*>(workspace.one)[c], 1);
  });
  // A factor and a constant stand in the place of deviation, gain and bias.
  const std::int64_t point_bytes = channels * element_bytes(type);
  const std::int64_t state_bytes = channels * element_bytes(accumulation_type(type));
  const auto at = [](auto* place, std::int64_t bytes) { return static_cast<char*>(place) + bytes; };
  for (std::int64_t b = 0; b < batch; ++b) {
    char* const sample = at(gradient_x, b * points * point_bytes);
    instance_norm_apply(queue, type, static_cast<const char*>(x) + b * points * point_bytes,
                        workspace.one, at(workspace.constant, b * point_bytes),
                        at(workspace.mean, b * state_bytes), at(workspace.factor, b * state_bytes),
                        sample, 1, points, channels);
    std::int64_t end = 0;
    const auto clear_to = [&](std::int64_t next) {
      std::memset(sample + end * point_bytes, 0,
                  static_cast<std::size_t>((next - end) * point_bytes));
    };
    for (const PointRun& run : runs) {
      clear_to(run.first);
      end = run.first + run.count;
    }
    clear_to(points);
  }
}

}  // namespace garonne::kernels
