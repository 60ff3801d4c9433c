#include "kernels/device/rotary.hpp"

#include "kernels/device/elementwise.hpp"
#include "kernels/device/spaces.hpp"

namespace garonne::kernels::device {

namespace {

// Element i of a thread is a pair of numbers: of all heads of all rows, the first half of each.
template <typename T>
struct Rotate {
  const T* x;
  const float* table;
  T* y;
  RotaryHeads heads;
  Accumulation<T> sign;
  std::int64_t sequence;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t first) const {
    for (int i = 0; i < count; ++i) turn(first + i);
  }

  KOKKOS_FUNCTION void turn(std::int64_t pair) const {
    using G = Accumulation<T>;
    const std::int64_t half = heads.head_size / 2;
    const std::int64_t group = heads.rotated + heads.copied;
    const std::int64_t head = pair / half;
    const std::int64_t place = head * heads.head_size + pair % half;
    const G a = load(x[place]);
    const G b = load(x[place + half]);
    if (head % group >= heads.rotated) {
      store(y[place], a);
      store(y[place + half], b);
      return;
    }
    const std::int64_t position = head / (heads.groups * group) % sequence;
    const float* const row = table + position * heads.head_size + pair % half;
    const G cosine = static_cast<G>(row[0]);
    const G sine = sign * static_cast<G>(row[half]);
    store(y[place], a * cosine - b * sine);
    store(y[place + half], b * cosine + a * sine);
  }
};

}  // namespace

void rotate_heads(const Place& place, ElementType type, const void* x, const float* table, void* y,
                  const RotaryHeads& heads, bool back, std::int64_t rows, std::int64_t sequence) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    using G = Accumulation<T>;
    elementwise<1>(space, rows * heads.width() / 2,
                   Rotate<T>{static_cast<const T*>(x), table, static_cast<T*>(y), heads,
                             back ? G{-1} : G{1}, sequence});
  });
}

}  // namespace garonne::kernels::device
