#include "kernels/device/instance_norm.hpp"

#include "kernels/device/elementwise.hpp"
#include "kernels/device/instance_sums.hpp"
#include "kernels/device/spaces.hpp"

namespace garonne::kernels::device {

namespace {

// Mean and inverse deviation of a sample, from its blocks.
template <typename T>
struct FinishStatistics {
  const double* sums;
  const T* first;
  std::int64_t blocks;
  std::int64_t points;
  std::int64_t channels;
  double epsilon;
  Accumulation<T>* mean;
  Accumulation<T>* inverse_deviation;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t c) const {
    const auto all = static_cast<double>(points);
    const double offset = sum_of_blocks(sums, blocks, 2 * channels, c) / all;
    const double variance =
        sum_of_blocks(sums, blocks, 2 * channels, channels + c) / all - offset * offset;
    mean[c] = static_cast<Accumulation<T>>(static_cast<double>(load(first[c])) + offset);
    inverse_deviation[c] =
        static_cast<Accumulation<T>>(1 / Kokkos::sqrt((variance < 0 ? 0 : variance) + epsilon));
  }
};

// The blocks of a sample added to sums of [2, channels], and put elsewhere too.
struct AddBlocks {
  const double* sums;
  std::int64_t blocks;
  std::int64_t width;
  double* total;
  bool accumulate;
  double* copy;  // or null

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t i) const {
    const double sum = sum_of_blocks(sums, blocks, width, i);
    total[i] = accumulate ? total[i] + sum : sum;
    if (copy != nullptr) copy[i] = sum;
  }
};

// From sums over points beside the first one to a mean and the squares beside it.
template <typename T>
struct FinishMoments {
  const T* first;       // [channels]; null: there is no point
  const double* total;  // [2, channels]
  double points;
  std::int64_t channels;
  double* mean;
  double* squares;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t c) const {
    if (first == nullptr) {
      mean[c] = squares[c] = 0;
      return;
    }
    const double offset = total[c] / points;
    const double beside = total[channels + c] - points * offset * offset;
    mean[c] = static_cast<double>(load(first[c])) + offset;
    squares[c] = beside < 0 ? 0 : beside;
  }
};

// Where a pack of [batch, points, channels] is.
struct FieldPlace {
  std::int64_t sample;
  std::int64_t channel;

  KOKKOS_FUNCTION FieldPlace(std::int64_t first, std::int64_t points, std::int64_t channels)
      : sample(first / (points * channels)), channel(first % channels) {}
};

template <typename T>
struct Apply {
  const T* x;
  const T* gain;
  const T* bias;
  const Accumulation<T>* mean;  // [batch, channels]
  const Accumulation<T>* inverse_deviation;
  T* y;
  std::int64_t points;
  std::int64_t channels;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    const FieldPlace at_place(first, points, channels);
    if constexpr (count > 1) {
      if (at_place.channel + count > channels) {
        for (int i = 0; i < count; ++i) at<1>(first + i);
        return;
      }
    }
    using G = Accumulation<T>;
    const std::int64_t state = at_place.sample * channels + at_place.channel;
    Values<G, count> values;
    Values<G, count> means;
    Values<G, count> inverses;
    Values<G, count> gains;
    Values<G, count> biases;
    read<count>(x + first, values);
    read<count>(mean + state, means);
    read<count>(inverse_deviation + state, inverses);
    read<count>(gain + at_place.channel, gains);
    read<count>(bias + at_place.channel, biases);
    for (int i = 0; i < count; ++i)
      values[i] = (values[i] - means[i]) * inverses[i] * gains[i] + biases[i];
    write<count>(y + first, values);
  }
};

template <typename T>
struct ApplyBackward {
  const T* x;
  const T* gradient_y;
  const T* gain;
  const Accumulation<T>* mean;
  const Accumulation<T>* inverse_deviation;
  const double* sums;  // [2, channels] of the one sample; null: statistics are held fast
  T* gradient_x;
  std::int64_t points;
  std::int64_t channels;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    const FieldPlace at_place(first, points, channels);
    if constexpr (count > 1) {
      if (at_place.channel + count > channels) {
        for (int i = 0; i < count; ++i) at<1>(first + i);
        return;
      }
    }
    using G = Accumulation<T>;
    const std::int64_t channel = at_place.channel;
    const std::int64_t state = at_place.sample * channels + channel;
    const double share = 1.0 / static_cast<double>(points);
    Values<G, count> values;
    Values<G, count> gradients;
    Values<G, count> means;
    Values<G, count> inverses;
    Values<G, count> gains;
    read<count>(x + first, values);
    read<count>(gradient_y + first, gradients);
    read<count>(mean + state, means);
    read<count>(inverse_deviation + state, inverses);
    read<count>(gain + channel, gains);
    for (int i = 0; i < count; ++i) {
      const G of_mean = sums == nullptr ? G{0} : static_cast<G>(sums[channel + i] * share);
      const G of_product =
          sums == nullptr ? G{0} : static_cast<G>(sums[channels + channel + i] * share);
      const G normal = (values[i] - means[i]) * inverses[i];
      values[i] = inverses[i] * gains[i] * (gradients[i] - of_mean - normal * of_product);
    }
    write<count>(gradient_x + first, values);
  }
};

template <typename G>
struct WriteParameters {
  const double* sums;  // [2, channels]: of bias, of gain
  G* gradient_gain;
  G* gradient_bias;
  bool accumulate;
  std::int64_t channels;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t c) const {
    const G of_bias = static_cast<G>(sums[c]);
    const G of_gain = static_cast<G>(sums[channels + c]);
    gradient_bias[c] = accumulate ? gradient_bias[c] + of_bias : of_bias;
    gradient_gain[c] = accumulate ? gradient_gain[c] + of_gain : of_gain;
  }
};

// The workspace of kernels/instance_norm.hpp: sums of all samples, a shift, sums of one, of its
// blocks.
struct Workspace {
  Workspace(void* workspace, std::int64_t channels)
      : all(static_cast<double*>(workspace)),
        sums(all + 3 * channels),
        blocks(sums + 2 * channels) {}

  double* all;
  double* sums;
  double* blocks;
};

template <typename T>
struct Tensors {
  using G = Accumulation<T>;

  Tensors(const void* values, const void* means, const void* inverses)
      : x(static_cast<const T*>(values)),
        mean(static_cast<const G*>(means)),
        inverse_deviation(static_cast<const G*>(inverses)) {}

  const T* x;
  const G* mean;
  const G* inverse_deviation;
};

}  // namespace

void instance_norm_forward(const Place& place, ElementType type, const void* x, const void* gain,
                           const void* bias, double epsilon, void* y, void* mean,
                           void* inverse_deviation, void* workspace, std::int64_t batch,
                           std::int64_t points, std::int64_t channels) {
  const Workspace work(workspace, channels);
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    using G = Accumulation<T>;
    for (std::int64_t entry = 0; entry < batch; ++entry) {
      const T* const sample = static_cast<const T*>(x) + entry * points * channels;
      const std::int64_t blocks =
          sum_blocks(space, StatisticsOf<T>{sample, sample}, work.blocks, points, channels);
      elementwise<1>(space, channels,
                     FinishStatistics<T>{work.blocks, sample, blocks, points, channels, epsilon,
                                         static_cast<G*>(mean) + entry * channels,
                                         static_cast<G*>(inverse_deviation) + entry * channels});
    }
  });
  instance_norm_apply(place, type, x, gain, bias, mean, inverse_deviation, y, batch, points,
                      channels);
}

void instance_norm_backward(const Place& place, ElementType type, const void* gradient_y,
                            const void* x, const void* gain, const void* mean,
                            const void* inverse_deviation, void* gradient_x, void* gradient_gain,
                            void* gradient_bias, bool accumulate_parameters, void* workspace,
                            std::int64_t batch, std::int64_t points, std::int64_t channels) {
  const Workspace work(workspace, channels);
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    using G = Accumulation<T>;
    const Tensors<T> tensors(x, mean, inverse_deviation);
    for (std::int64_t entry = 0; entry < batch; ++entry) {
      const std::int64_t at = entry * points * channels;
      const T* const gradient = static_cast<const T*>(gradient_y) + at;
      const G* const means = tensors.mean + entry * channels;
      const G* const inverses = tensors.inverse_deviation + entry * channels;
      const std::int64_t blocks =
          sum_blocks(space, ProductsOf<T>{tensors.x + at, gradient, means, inverses}, work.blocks,
                     points, channels);
      elementwise<1>(space, 2 * channels,
                     AddBlocks{work.blocks, blocks, 2 * channels, work.all, entry > 0, work.sums});
      if (gradient_x == nullptr) continue;
      elementwise<pack<T>>(
          space, points * channels,
          ApplyBackward<T>{tensors.x + at, gradient, static_cast<const T*>(gain), means, inverses,
                           work.sums, static_cast<T*>(gradient_x) + at, points, channels});
    }
    elementwise<1>(
        space, channels,
        WriteParameters<G>{work.all, static_cast<G*>(gradient_gain), static_cast<G*>(gradient_bias),
                           accumulate_parameters, channels});
  });
}

void instance_norm_moments(const Place& place, ElementType type, const void* x,
                           std::span<const PointRun> runs, double* moments, void* workspace,
                           std::int64_t batch, std::int64_t points, std::int64_t channels) {
  const Workspace work(workspace, channels);
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    for (std::int64_t entry = 0; entry < batch; ++entry) {
      const T* const sample = static_cast<const T*>(x) + entry * points * channels;
      const T* const first = runs.empty() ? nullptr : sample + runs[0].first * channels;
      std::int64_t counted = 0;
      for (const PointRun& run : runs) {
        const std::int64_t blocks =
            sum_blocks(space, StatisticsOf<T>{sample + run.first * channels, first}, work.blocks,
                       run.count, channels);
        elementwise<1>(
            space, 2 * channels,
            AddBlocks{work.blocks, blocks, 2 * channels, work.all, counted > 0, nullptr});
        counted += run.count;
      }
      elementwise<1>(
          space, channels,
          FinishMoments<T>{first, work.all, static_cast<double>(counted), channels,
                           moments + entry * channels, moments + (batch + entry) * channels});
    }
  });
}

void instance_norm_apply(const Place& place, ElementType type, const void* x, const void* gain,
                         const void* bias, const void* mean, const void* inverse_deviation, void* y,
                         std::int64_t batch, std::int64_t points, std::int64_t channels) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    const Tensors<T> tensors(x, mean, inverse_deviation);
    elementwise<pack<T>>(
        space, batch * points * channels,
        Apply<T>{tensors.x, static_cast<const T*>(gain), static_cast<const T*>(bias), tensors.mean,
                 tensors.inverse_deviation, static_cast<T*>(y), points, channels});
  });
}

void instance_norm_apply_backward(const Place& place, ElementType type, const void* gradient_y,
                                  const void* x, const void* gain, const void* mean,
                                  const void* inverse_deviation, void* gradient_x, double* sums,
                                  void* workspace, std::int64_t batch, std::int64_t points,
                                  std::int64_t channels) {
  const Workspace work(workspace, channels);
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    const Tensors<T> tensors(x, mean, inverse_deviation);
    const auto* const gradient = static_cast<const T*>(gradient_y);
    for (std::int64_t entry = 0; entry < batch; ++entry) {
      const std::int64_t at = entry * points * channels;
      const std::int64_t blocks =
          sum_blocks(space,
                     ProductsOf<T>{tensors.x + at, gradient + at, tensors.mean + entry * channels,
                                   tensors.inverse_deviation + entry * channels},
                     work.blocks, points, channels);
      elementwise<1>(space, 2 * channels,
                     AddBlocks{work.blocks, blocks, 2 * channels, sums + 2 * entry * channels,
                               false, nullptr});
    }
    elementwise<pack<T>>(space, batch * points * channels,
                         ApplyBackward<T>{tensors.x, gradient, static_cast<const T*>(gain),
                                          tensors.mean, tensors.inverse_deviation, nullptr,
                                          static_cast<T*>(gradient_x), points, channels});
  });
}

}  // namespace garonne::kernels::device
