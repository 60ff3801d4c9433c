#include "kernels/device/rms_norm.hpp"

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
struct AddSquares {
  const T* x;
  Accumulation<T> total;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) {
    Values<Accumulation<T>, count> values;
    read<count>(x + first, values);
    for (int i = 0; i < count; ++i) total = total + values[i] * values[i];
  }
};

template <typename T>
struct Normalise {
  const T* x;
  const T* gain;
  T* y;
  Accumulation<T> inverse;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    Values<Accumulation<T>, count> values;
    Values<Accumulation<T>, count> gains;
    read<count>(x + first, values);
    read<count>(gain + first, gains);
    for (int i = 0; i < count; ++i) values[i] = values[i] * inverse * gains[i];
    write<count>(y + first, values);
  }
};

template <typename T>
struct Forward {
  using G = Accumulation<T>;

  const T* x;
  const T* gain;
  G epsilon;
  T* y;
  G* inverses;
  std::int64_t hidden;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    G* const sums = team.template shared<G>(Team::groups);
    const T* const from = x + row * hidden;
    const G share = G{1} / static_cast<G>(hidden);
    const G squares = sum_of_columns<T>(team, sums, hidden, AddSquares<T>{from, 0});
    const G inverse = G{1} / Kokkos::sqrt(squares * share + epsilon);
    for_columns<T>(team, hidden, Normalise<T>{from, gain, y + row * hidden, inverse});
    team.each(1, [&](int) {
      if (inverses != nullptr) inverses[row] = inverse;
    });
  }
};

// The same with the row in registers.
template <typename T>
struct OwnForward {
  using G = Accumulation<T>;

  const T* x;
  const T* gain;
  G epsilon;
  T* y;
  G* inverses;
  int hidden;

  template <typename Span>
  KOKKOS_FUNCTION void of_row(const Span& span, G* sums, std::int64_t row) const {
    using Own = OwnRow<T, Span::threads>;
    using Pack = Values<G, Own::width>;
    PerThread<Own, Span::threads> own;
    const G share = G{1} / static_cast<G>(hidden);
    const G squares = span.template sum<G>(sums, [&](int thread) {
      own[thread].fetch(x + row * hidden, hidden, thread);
      G total = 0;
      Own::visit(hidden, thread, [&](int i, int) {
        Pack values;
        own[thread].values(i, values);
        for (int j = 0; j < Own::width; ++j) total = total + values[j] * values[j];
      });
      return total;
    });
    const G inverse = G{1} / Kokkos::sqrt(squares * share + epsilon);
    span.each_thread([&](int thread) {
      Own::visit(hidden, thread, [&](int i, int first) {
        Pack values;
        Pack gains;
        unpack<Own::width>(fetch_packs<Own::width>(gain + first), gains);
        own[thread].values(i, values);
        for (int j = 0; j < Own::width; ++j) values[j] = values[j] * inverse * gains[j];
        write_packs<Own::width>(y + row * hidden + first, values);
      });
      if (thread == 0 && inverses != nullptr) inverses[row] = inverse;
    });
  }
};

template <typename T>
struct AddProducts {
  const T* gradient_y;
  const T* gain;
  const T* x;
  Accumulation<T> total;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) {
    Values<Accumulation<T>, count> gradients;
    Values<Accumulation<T>, count> gains;
    Values<Accumulation<T>, count> values;
    read<count>(gradient_y + first, gradients);
    read<count>(gain + first, gains);
    read<count>(x + first, values);
    for (int i = 0; i < count; ++i) total = total + gradients[i] * gains[i] * values[i];
  }
};

template <typename T>
struct WriteGradient {
  const T* gradient_y;
  const T* gain;
  const T* x;
  T* gradient_x;
  bool accumulate;
  Accumulation<T> inverse;
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
      const G value = inverse * (gradients[i] * gains[i] - values[i] * inverse * product);
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
  const G* inverses;
  T* gradient_x;
  bool accumulate;
  std::int64_t hidden;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    G* const sums = team.template shared<G>(Team::groups);
    const T* const given = gradient_y + row * hidden;
    const T* const from = x + row * hidden;
    const G inverse = inverses[row];
    const G product = sum_of_columns<T>(team, sums, hidden, AddProducts<T>{given, gain, from, 0}) *
                      (G{1} / static_cast<G>(hidden) * inverse);
    for_columns<T>(team, hidden,
                   WriteGradient<T>{given, gain, from, gradient_x + row * hidden, accumulate,
                                    inverse, product});
  }
};

// The same with the rows in registers.
template <typename T>
struct OwnInputGradient {
  using G = Accumulation<T>;

  const T* gradient_y;
  const T* x;
  const T* gain;
  const G* inverses;
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
    const G inverse = inverses[row];
    const G share = G{1} / static_cast<G>(hidden) * inverse;
    const G product = share * span.template sum<G>(sums, [&](int thread) {
      given[thread].fetch(gradient_y + row * hidden, hidden, thread);
      from[thread].fetch(x + row * hidden, hidden, thread);
      if (accumulate) before[thread].fetch(result, hidden, thread);
      gains[thread].fetch(gain, hidden, thread);
      G total = 0;
      Own::visit(hidden, thread, [&](int i, int) {
        Pack gradients;
        Pack factors;
        Pack values;
        given[thread].values(i, gradients);
        gains[thread].values(i, factors);
        from[thread].values(i, values);
        for (int j = 0; j < Own::width; ++j) total = total + gradients[j] * factors[j] * values[j];
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
          const G value = inverse * (gradients[j] * factors[j] - values[j] * inverse * product);
          results[j] = accumulate ? results[j] + value : value;
        }
        write_packs<Own::width>(result + first, results);
      });
    });
  }
};

// Of the gradient times the normalised x.
template <typename T>
struct GainTerms {
  using G = Accumulation<T>;

  const T* gradient_y;
  const T* x;
  const G* inverses;

  struct Terms {
    Fetched<T, pack<T>> gradients;
    Fetched<T, pack<T>> values;
    G inverse;
  };

  KOKKOS_FUNCTION void add(std::int64_t at, std::int64_t row, std::int64_t, G& of_gain) const {
    of_gain += load(gradient_y[at]) * (load(x[at]) * inverses[row]);
  }

  KOKKOS_FUNCTION Terms fetch(std::int64_t at, std::int64_t row) const {
    return {fetch_packs<pack<T>>(gradient_y + at), fetch_packs<pack<T>>(x + at), inverses[row]};
  }
  KOKKOS_FUNCTION void add(const Terms& terms, Values<G, pack<T>>& of_gain) const {
    Values<G, pack<T>> gradients;
    Values<G, pack<T>> values;
    unpack<pack<T>>(terms.gradients, gradients);
    unpack<pack<T>>(terms.values, values);
    for (int i = 0; i < pack<T>; ++i)
      of_gain[i] = of_gain[i] + gradients[i] * (values[i] * terms.inverse);
  }
};

}  // namespace

void rms_norm_forward(const Place& place, ElementType type, const void* x, const void* gain,
                      double epsilon, void* y, void* inverse, std::int64_t rows,
                      std::int64_t hidden) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    using G = Accumulation<T>;
    if (are_packed<T>(hidden, x, gain, y) &&
        for_own_rows<T>(space, rows, hidden,
                        OwnForward<T>{static_cast<const T*>(x), static_cast<const T*>(gain),
                                      static_cast<G>(epsilon), static_cast<T*>(y),
                                      static_cast<G*>(inverse), static_cast<int>(hidden)})) {
      return;
    }
    for_teams<row_groups>(
        space, rows, shared_bytes<G>(row_groups),
        Forward<T>{static_cast<const T*>(x), static_cast<const T*>(gain), static_cast<G>(epsilon),
                   static_cast<T*>(y), static_cast<G*>(inverse), hidden});
  });
}

void rms_norm_backward(const Place& place, ElementType type, const void* gradient_y, const void* x,
                       const void* gain, const void* inverse, void* gradient_x, bool accumulate_x,
                       void* gradient_gain, bool accumulate_gain, void* workspace,
                       std::int64_t rows, std::int64_t hidden) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    using G = Accumulation<T>;
    const auto* const given = static_cast<const T*>(gradient_y);
    const auto* const from = static_cast<const T*>(x);
    const auto* const inverses = static_cast<const G*>(inverse);
    auto* const partial = static_cast<G*>(workspace);
    const std::int64_t partitions = row_partitions(rows);
    const bool packed = are_packed<T>(hidden, gradient_y, x, gain, gradient_x, workspace);
    if (gradient_gain != nullptr) {
      const GainTerms<T> terms{given, from, inverses};
      if (packed) {
        sum_packed_column_blocks<1, T>(space, terms, partial, partitions, rows, hidden);
      } else {
        sum_column_blocks<1>(space, terms, partial, partitions, rows, hidden);
      }
    }
    if (gradient_x != nullptr) {
      auto* const result = static_cast<T*>(gradient_x);
      const auto* const gains = static_cast<const T*>(gain);
      const bool done =
          packed && for_own_rows<T>(space, rows, hidden,
                                    OwnInputGradient<T>{given, from, gains, inverses, result,
                                                        accumulate_x, static_cast<int>(hidden)});
      if (!done) {
        for_teams<row_groups>(
            space, rows, shared_bytes<G>(row_groups),
            InputGradient<T>{given, from, gains, inverses, result, accumulate_x, hidden});
      }
    }
    if (gradient_gain != nullptr) {
      sum_columns(space, place, partial, static_cast<G*>(gradient_gain), accumulate_gain,
                  partitions, hidden, hidden);
    }
  });
}

}  // namespace garonne::kernels::device
