#include "kernels/device/layer_norm.hpp"

#include "base/error.hpp"
#include "kernels/device/column_block_sums.hpp"
#include "kernels/device/column_sum.hpp"
#include "kernels/device/own_row.hpp"
#include "kernels/device/row.hpp"
#include "kernels/device/spaces.hpp"
#include "kernels/row_partitions.hpp"

namespace garonne::kernels::device {

namespace {

constexpr int row_groups = 4;

template <typename T>
struct AddUp {
  const T* x;
  Accumulation<T> total;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) {
    Values<Accumulation<T>, count> values;
    read<count>(x + first, values);
    for (int i = 0; i < count; ++i) total = total + values[i];
  }
};

template <typename T>
struct AddSquares {
  const T* x;
  Accumulation<T> mean;
  Accumulation<T> total;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) {
    using G = Accumulation<T>;
    Values<G, count> values;
    read<count>(x + first, values);
    for (int i = 0; i < count; ++i) {
      const G deviation = values[i] - mean;
      total = total + deviation * deviation;
    }
  }
};

template <typename T>
struct Normalise {
  const T* x;
  const T* gain;
  const T* bias;
  T* y;
  Accumulation<T> mean;
  Accumulation<T> inverse;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    using G = Accumulation<T>;
    Values<G, count> values;
    Values<G, count> gains;
    Values<G, count> biases;
    read<count>(x + first, values);
    read<count>(gain + first, gains);
    read<count>(bias + first, biases);
    for (int i = 0; i < count; ++i) values[i] = (values[i] - mean) * inverse * gains[i] + biases[i];
    write<count>(y + first, values);
  }
};

template <typename T>
struct Forward {
  using G = Accumulation<T>;

  const T* x;
  const T* gain;
  const T* bias;
  G epsilon;
  T* y;
  G* mean;
  G* inverse_deviation;
  std::int64_t hidden;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    G* const sums = team.template shared<G>(Team::groups);
    const T* const from = x + row * hidden;
    const G share = G{1} / static_cast<G>(hidden);
    const G center = sum_of_columns<T>(team, sums, hidden, AddUp<T>{from, 0}) * share;
    const G squares = sum_of_columns<T>(team, sums, hidden, AddSquares<T>{from, center, 0});
    const G inverse = G{1} / Kokkos::sqrt(squares * share + epsilon);
    for_columns<T>(team, hidden, Normalise<T>{from, gain, bias, y + row * hidden, center, inverse});
    team.each(1, [&](int) {
      if (mean != nullptr) mean[row] = center;
      if (inverse_deviation != nullptr) inverse_deviation[row] = inverse;
    });
  }
};

// The same with the row in registers.
template <typename T>
struct OwnForward {
  using G = Accumulation<T>;

  const T* x;
  const T* gain;
  const T* bias;
  G epsilon;
  T* y;
  G* mean;
  G* inverse_deviation;
  int hidden;

  template <typename Span>
  KOKKOS_FUNCTION void of_row(const Span& span, G* sums, std::int64_t row) const {
    using Own = OwnRow<T, Span::threads>;
    using Pack = Values<G, Own::width>;
    PerThread<Own, Span::threads> own;
    const G share = G{1} / static_cast<G>(hidden);
    const G center = share * span.template sum<G>(sums, [&](int thread) {
      own[thread].fetch(x + row * hidden, hidden, thread);
      G total = 0;
      Own::visit(hidden, thread, [&](int i, int) {
        Pack values;
        own[thread].values(i, values);
        for (int j = 0; j < Own::width; ++j) total = total + values[j];
      });
      return total;
    });
    const G squares = span.template sum<G>(sums, [&](int thread) {
      G total = 0;
      Own::visit(hidden, thread, [&](int i, int) {
        Pack values;
        own[thread].values(i, values);
        for (int j = 0; j < Own::width; ++j) {
          const G deviation = values[j] - center;
          total = total + deviation * deviation;
        }
      });
      return total;
    });
    const G inverse = G{1} / Kokkos::sqrt(squares * share + epsilon);
    span.each_thread([&](int thread) {
      Own::visit(hidden, thread, [&](int i, int first) {
        const auto fetched_gains = fetch_packs<Own::width>(gain + first);
        const auto fetched_biases = fetch_packs<Own::width>(bias + first);
        Pack values;
        Pack gains;
        Pack biases;
        own[thread].values(i, values);
        unpack<Own::width>(fetched_gains, gains);
        unpack<Own::width>(fetched_biases, biases);
        for (int j = 0; j < Own::width; ++j)
          values[j] = (values[j] - center) * inverse * gains[j] + biases[j];
        write_packs<Own::width>(y + row * hidden + first, values);
      });
      if (thread != 0) return;
      if (mean != nullptr) mean[row] = center;
      if (inverse_deviation != nullptr) inverse_deviation[row] = inverse;
    });
  }
};

template <typename T>
struct AddWeighted {
  const T* gradient_y;
  const T* gain;
  Accumulation<T> total;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) {
    Values<Accumulation<T>, count> gradients;
    Values<Accumulation<T>, count> gains;
    read<count>(gradient_y + first, gradients);
    read<count>(gain + first, gains);
    for (int i = 0; i < count; ++i) total = total + gradients[i] * gains[i];
  }
};

template <typename T>
struct AddProducts {
  const T* gradient_y;
  const T* gain;
  const T* x;
  Accumulation<T> mean;
  Accumulation<T> total;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) {
    Values<Accumulation<T>, count> gradients;
    Values<Accumulation<T>, count> gains;
    Values<Accumulation<T>, count> values;
    read<count>(gradient_y + first, gradients);
    read<count>(gain + first, gains);
    read<count>(x + first, values);
    for (int i = 0; i < count; ++i) total = total + gradients[i] * gains[i] * (values[i] - mean);
  }
};

template <typename T>
struct WriteGradient {
  const T* gradient_y;
  const T* gain;
  const T* x;
  T* gradient_x;
  bool accumulate;
  Accumulation<T> mean;
  Accumulation<T> inverse;
  Accumulation<T> sum;
  Accumulation<T> product;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    using G = Accumulation<T>;
    Values<G, count> gradients;
    Values<G, count> gains;
    Values<G, count> values;
    Values<G, count> results{};
    read<count>(gradient_y + first, gradients);
    read<count>(gain + first, gains);
    read<count>(x + first, values);
    if (accumulate) read<count>(gradient_x + first, results);
    for (int i = 0; i < count; ++i) {
      const G normal = (values[i] - mean) * inverse;
      const G value = inverse * (gradients[i] * gains[i] - sum - normal * product);
      results[i] = accumulate ? results[i] + value : value;
    }
    write<count>(gradient_x + first, results);
  }
};

template <typename T>
struct InputGradient {
  using G = Accumulation<T>;

  const T* gradient_y;
  const T* x;
  const T* gain;
  const G* mean;
  const G* inverse_deviation;
  T* gradient_x;
  bool accumulate;
  std::int64_t hidden;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    G* const sums = team.template shared<G>(Team::groups);
    const T* const given = gradient_y + row * hidden;
    const T* const from = x + row * hidden;
    const G share = G{1} / static_cast<G>(hidden);
    const G center = mean[row];
    const G inverse = inverse_deviation[row];
    const G sum = sum_of_columns<T>(team, sums, hidden, AddWeighted<T>{given, gain, 0}) * share;
    const G product =
        sum_of_columns<T>(team, sums, hidden, AddProducts<T>{given, gain, from, center, 0}) *
        (share * inverse);
    for_columns<T>(team, hidden,
                   WriteGradient<T>{given, gain, from, gradient_x + row * hidden, accumulate,
                                    center, inverse, sum, product});
  }
};

// The same with the rows in registers.
template <typename T>
struct OwnInputGradient {
  using G = Accumulation<T>;

  const T* gradient_y;
  const T* x;
  const T* gain;
  const G* mean;
  const G* inverse_deviation;
  T* gradient_x;
  bool accumulate;
  int hidden;

  template <typename Span>
  KOKKOS_FUNCTION void of_row(const Span& span, G* sums, std::int64_t row) const {
    using Own = OwnRow<T, Span::threads>;
    using Pack = Values<G, Own::width>;
    PerThread<Own, Span::threads> given;
    PerThread<Own, Span::threads> from;
    PerThread<Own, Span::threads> gains;
    PerThread<Own, Span::threads> before;
    T* const result = gradient_x + row * hidden;
    const G share = G{1} / static_cast<G>(hidden);
    const G center = mean[row];
    const G inverse = inverse_deviation[row];
    const G sum = share * span.template sum<G>(sums, [&](int thread) {
      given[thread].fetch(gradient_y + row * hidden, hidden, thread);
      from[thread].fetch(x + row * hidden, hidden, thread);
      if (accumulate) before[thread].fetch(result, hidden, thread);
      gains[thread].fetch(gain, hidden, thread);
      G total = 0;
      Own::visit(hidden, thread, [&](int i, int) {
        Pack gradients;
        Pack factors;
        given[thread].values(i, gradients);
        gains[thread].values(i, factors);
        for (int j = 0; j < Own::width; ++j) total = total + gradients[j] * factors[j];
      });
      return total;
    });
    const G product = share * inverse * span.template sum<G>(sums, [&](int thread) {
      G total = 0;
      Own::visit(hidden, thread, [&](int i, int) {
        Pack gradients;
        Pack factors;
        Pack values;
        given[thread].values(i, gradients);
        gains[thread].values(i, factors);
        from[thread].values(i, values);
        for (int j = 0; j < Own::width; ++j)
          total = total + gradients[j] * factors[j] * (values[j] - center);
      });
      return total;
    });
    span.each_thread([&](int thread) {
      Own::visit(hidden, thread, [&](int i, int first) {
        Pack gradients;
        Pack factors;
        Pack values;
        Pack results;
        given[thread].values(i, gradients);
        gains[thread].values(i, factors);
        from[thread].values(i, values);
        if (accumulate) before[thread].values(i, results);
        for (int j = 0; j < Own::width; ++j) {
          const G normal = (values[j] - center) * inverse;
          const G value = inverse * (gradients[j] * factors[j] - sum - normal * product);
          results[j] = accumulate ? results[j] + value : value;
        }
        write_packs<Own::width>(result + first, results);
      });
    });
  }
};

// Of the gradient times the normalised x, for the gain, and of the gradient, for the bias.
template <typename T>
struct ParameterTerms {
  using G = Accumulation<T>;

  const T* gradient_y;
  const T* x;
  const G* mean;
  const G* inverse_deviation;

  struct Terms {
    Fetched<T, pack<T>> gradients;
    Fetched<T, pack<T>> values;
    G mean;
    G inverse;
  };

  KOKKOS_FUNCTION void add(std::int64_t at, std::int64_t row, std::int64_t, G& of_gain,
                           G& of_bias) const {
    const G gradient = load(gradient_y[at]);
    const G normal = (load(x[at]) - mean[row]) * inverse_deviation[row];
    of_gain += gradient * normal;
    of_bias += gradient;
  }

  KOKKOS_FUNCTION Terms fetch(std::int64_t at, std::int64_t row) const {
    return {fetch_packs<pack<T>>(gradient_y + at), fetch_packs<pack<T>>(x + at), mean[row],
            inverse_deviation[row]};
  }
  KOKKOS_FUNCTION void add(const Terms& terms, Values<G, pack<T>>& of_gain,
                           Values<G, pack<T>>& of_bias) const {
    Values<G, pack<T>> gradients;
    Values<G, pack<T>> values;
    unpack<pack<T>>(terms.gradients, gradients);
    unpack<pack<T>>(terms.values, values);
    for (int i = 0; i < pack<T>; ++i) {
      of_gain[i] = of_gain[i] + gradients[i] * ((values[i] - terms.mean) * terms.inverse);
      of_bias[i] = of_bias[i] + gradients[i];
    }
  }
};

}  // namespace

void layer_norm_forward(const Place& place, ElementType type, const void* x, const void* gain,
                        const void* bias, double epsilon, void* y, void* mean,
                        void* inverse_deviation, std::int64_t rows, std::int64_t hidden) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    using G = Accumulation<T>;
    if (are_packed<T>(hidden, x, gain, bias, y) &&
        for_own_rows<T>(
            space, rows, hidden,
            OwnForward<T>{static_cast<const T*>(x), static_cast<const T*>(gain),
                          static_cast<const T*>(bias), static_cast<G>(epsilon), static_cast<T*>(y),
                          static_cast<G*>(mean), static_cast<G*>(inverse_deviation),
                          static_cast<int>(hidden)})) {
      return;
    }
    for_teams<row_groups>(
        space, rows, shared_bytes<G>(row_groups),
        Forward<T>{static_cast<const T*>(x), static_cast<const T*>(gain),
                   static_cast<const T*>(bias), static_cast<G>(epsilon), static_cast<T*>(y),
                   static_cast<G*>(mean), static_cast<G*>(inverse_deviation), hidden});
  });
}

void layer_norm_backward(const Place& place, ElementType type, const void* gradient_y,
                         const void* x, const void* gain, const void* mean,
                         const void* inverse_deviation, void* gradient_x, bool accumulate_x,
                         void* gradient_gain, void* gradient_bias, bool accumulate_parameters,
                         void* workspace, std::int64_t rows, std::int64_t hidden) {
  expect((gradient_gain == nullptr) == (gradient_bias == nullptr),
         "layer_norm_backward wants both parameter gradients or none");
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    using G = Accumulation<T>;
    const auto* const given = static_cast<const T*>(gradient_y);
    const auto* const from = static_cast<const T*>(x);
    const auto* const means = static_cast<const G*>(mean);
    const auto* const inverses = static_cast<const G*>(inverse_deviation);
    auto* const partial = static_cast<G*>(workspace);
    const std::int64_t partitions = row_partitions(rows);
    const bool packed = are_packed<T>(hidden, gradient_y, x, gain, gradient_x, workspace);
    if (gradient_gain != nullptr) {
      const ParameterTerms<T> terms{given, from, means, inverses};
      if (packed) {
        sum_packed_column_blocks<2, T>(space, terms, partial, partitions, rows, hidden);
      } else {
        sum_column_blocks<2>(space, terms, partial, partitions, rows, hidden);
      }
    }
    if (gradient_x != nullptr) {
      auto* const result = static_cast<T*>(gradient_x);
      const auto* const gains = static_cast<const T*>(gain);
      const bool done =
          packed && for_own_rows<T>(space, rows, hidden,
                                    OwnInputGradient<T>{given, from, gains, means, inverses, result,
                                                        accumulate_x, static_cast<int>(hidden)});
      if (!done) {
        for_teams<row_groups>(
            space, rows, shared_bytes<G>(row_groups),
            InputGradient<T>{given, from, gains, means, inverses, result, accumulate_x, hidden});
      }
    }
    if (gradient_gain != nullptr) {
      sum_columns(space, place, partial, static_cast<G*>(gradient_gain), accumulate_parameters,
                  partitions, hidden, 2 * hidden);
      sum_columns(space, place, partial + hidden, static_cast<G*>(gradient_bias),
                  accumulate_parameters, partitions, hidden, 2 * hidden);
    }
  });
}

}  // namespace garonne::kernels::device
