#include "kernels/device/gelu.hpp"

#include "kernels/device/elementwise.hpp"
#include "kernels/device/exponential.hpp"
#include "kernels/device/spaces.hpp"

namespace garonne::kernels::device {

namespace {

// As in the CPU's loop: with s = sqrt(2/pi) (x + 0.044715 x^3), x/2 (1 + tanh s) = x / (1 +
// exp(-2 s)).
constexpr double gelu_factor = -2.0 * 0.79788456080286535588;
constexpr double gelu_cubic = 0.044715;

template <typename T>
struct GeluForward {
  const T* x;
  T* y;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    using G = Accumulation<T>;
    Values<G, count> values;
    read<count>(x + first, values);
    for (int i = 0; i < count; ++i) {
      const G value = values[i];
      const G inner = static_cast<G>(gelu_factor) * value *
                      (G{1} + static_cast<G>(gelu_cubic) * (value * value));
      values[i] = Rounded<T>::quotient(value, G{1} + Rounded<T>::exponential(inner));
    }
    write<count>(y + first, values);
  }
};

template <typename T>
struct GeluBackward {
  const T* gradient_y;
  const T* x;
  T* gradient_x;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    using G = Accumulation<T>;
    Values<G, count> values;
    Values<G, count> gradients;
    const auto fetched_values = fetch<count>(x + first);
    const auto fetched_gradients = fetch<count>(gradient_y + first);
    unpack<count>(fetched_values, values);
    unpack<count>(fetched_gradients, gradients);
    for (int i = 0; i < count; ++i) {
      const G value = values[i];
      const G square = value * value;
      const G inner =
          static_cast<G>(gelu_factor) * value * (G{1} + static_cast<G>(gelu_cubic) * square);
      const G slope =
          static_cast<G>(gelu_factor) * (G{1} + static_cast<G>(3.0 * gelu_cubic) * square);
      const G power = Rounded<T>::exponential(inner);
      const G sigmoid = Rounded<T>::quotient(G{1}, G{1} + power);
      gradients[i] = gradients[i] * sigmoid * (G{1} - value * slope * (power * sigmoid));
    }
    write<count>(gradient_x + first, gradients);
  }
};

}  // namespace

void gelu_forward(const Place& place, ElementType type, const void* x, void* y, std::int64_t n) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    elementwise<pack<T>>(space, n, GeluForward<T>{static_cast<const T*>(x), static_cast<T*>(y)});
  });
}

void gelu_backward(const Place& place, ElementType type, const void* gradient_y, const void* x,
                   void* gradient_x, std::int64_t n) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    elementwise<pack<T>>(space, n,
                         GeluBackward<T>{static_cast<const T*>(gradient_y),
                                         static_cast<const T*>(x), static_cast<T*>(gradient_x)});
  });
}

}  // namespace garonne::kernels::device
