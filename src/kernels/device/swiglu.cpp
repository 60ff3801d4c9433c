#include "kernels/device/swiglu.hpp"

#include "kernels/device/exponential.hpp"
#include "kernels/device/row.hpp"
#include "kernels/device/spaces.hpp"

namespace garonne::kernels::device {

namespace {

constexpr int row_groups = 4;

// Of one row.
template <typename T>
struct ForwardColumns {
  const T* gates;
  const T* ups;
  T* y;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    using G = Accumulation<T>;
    Values<G, count> values;
    Values<G, count> factors;
    const auto fetched_values = fetch<count>(gates + first);
    const auto fetched_factors = fetch<count>(ups + first);
    unpack<count>(fetched_values, values);
    unpack<count>(fetched_factors, factors);
    for (int i = 0; i < count; ++i) {
      const G power = Rounded<T>::exponential(-values[i]);
      values[i] = Rounded<T>::quotient(values[i], G{1} + power) * factors[i];
    }
    write<count>(y + first, values);
  }
};

template <typename T>
struct BackwardColumns {
  const T* gradient_y;
  const T* gates;
  const T* ups;
  T* of_gates;
  T* of_ups;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    using G = Accumulation<T>;
    Values<G, count> gradients;
    Values<G, count> values;
    Values<G, count> factors;
    const auto fetched_gradients = fetch<count>(gradient_y + first);
    const auto fetched_values = fetch<count>(gates + first);
    const auto fetched_factors = fetch<count>(ups + first);
    unpack<count>(fetched_gradients, gradients);
    unpack<count>(fetched_values, values);
    unpack<count>(fetched_factors, factors);
    for (int i = 0; i < count; ++i) {
      const G gate = values[i];
      const G sigmoid = Rounded<T>::quotient(G{1}, G{1} + Rounded<T>::exponential(-gate));
      values[i] = gradients[i] * factors[i] * (sigmoid * (G{1} + gate * (G{1} - sigmoid)));
      factors[i] = gradients[i] * (gate * sigmoid);
    }
    write<count>(of_gates + first, values);
    write<count>(of_ups + first, factors);
  }
};

template <typename T>
struct Forward {
  const T* x;
  T* y;
  std::int64_t inner;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    const T* const gates = x + row * 2 * inner;
    for_columns<T>(team, inner, ForwardColumns<T>{gates, gates + inner, y + row * inner});
  }
};

template <typename T>
struct Backward {
  const T* gradient_y;
  const T* x;
  T* gradient_x;
  std::int64_t inner;

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t row) const {
    const T* const gates = x + row * 2 * inner;
    T* const of_gates = gradient_x + row * 2 * inner;
    for_columns<T>(team, inner,
                   BackwardColumns<T>{gradient_y + row * inner, gates, gates + inner, of_gates,
                                      of_gates + inner});
  }
};

}  // namespace

void swiglu_forward(const Place& place, ElementType type, const void* x, void* y, std::int64_t rows,
                    std::int64_t inner) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    for_teams<row_groups>(space, rows, 0,
                          Forward<T>{static_cast<const T*>(x), static_cast<T*>(y), inner});
  });
}

void swiglu_backward(const Place& place, ElementType type, const void* gradient_y, const void* x,
                     void* gradient_x, std::int64_t rows, std::int64_t inner) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    for_teams<row_groups>(space, rows, 0,
                          Backward<T>{static_cast<const T*>(gradient_y), static_cast<const T*>(x),
                                      static_cast<T*>(gradient_x), inner});
  });
}

}  // namespace garonne::kernels::device
