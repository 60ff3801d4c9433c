#include "kernels/device/initialise.hpp"

#include "kernels/device/elementwise.hpp"
#include "kernels/device/spaces.hpp"
#include "kernels/normal_numbers.hpp"

namespace garonne::kernels::device {

namespace {

// A thread has a group of four elements of the tensor, of which the first and the last group may
// lie partly outside.
template <typename T>
struct FillNormal {
  T* values;
  std::int64_t n;
  PhiloxKey key;
  double deviation;
  std::int64_t first_element;
  std::uint64_t step;
  std::uint64_t sample;
  const std::uint64_t* step_place;  // or null
  const std::int64_t* sample_place;

  template <int count>
  KOKKOS_FUNCTION void at(std::int64_t index) const {
    const std::int64_t group = first_element / 4 + index;
    const PhiloxBlock block =
        philox_at(key, step_place == nullptr ? step : *step_place,
                  sample_place == nullptr ? sample : static_cast<std::uint64_t>(*sample_place),
                  static_cast<std::uint64_t>(group));
    double normals[4];
    normal_pair(block.word[0], block.word[1], deviation, normals[0], normals[1]);
    normal_pair(block.word[2], block.word[3], deviation, normals[2], normals[3]);
    const std::int64_t first = 4 * group - first_element;
    Values<Accumulation<T>, 4> rounded;
    for (int i = 0; i < 4; ++i) rounded[i] = static_cast<Accumulation<T>>(normals[i]);
    if (first >= 0 && first + 4 <= n) {
      write<4>(values + first, rounded);
      return;
    }
    for (int i = 0; i < 4; ++i) {
      if (first + i >= 0 && first + i < n) store(values[first + i], rounded[i]);
    }
  }
};

}  // namespace

void fill_normal(const Place& place, ElementType type, void* values, std::int64_t n, PhiloxKey key,
                 double deviation, std::int64_t first_element, std::uint64_t step,
                 std::uint64_t sample, const std::uint64_t* step_place,
                 const std::int64_t* sample_place) {
  const std::int64_t groups = (first_element + n + 3) / 4 - first_element / 4;
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    elementwise<1>(space, groups,
                   FillNormal<T>{static_cast<T*>(values), n, key, deviation, first_element, step,
                                 sample, step_place, sample_place});
  });
}

}  // namespace garonne::kernels::device
