// What the tests of device kernels share: the places that this build has kernels for, and arrays in
// their memory.
#pragma once

#include "kernels/arrays.hpp"
#include "kernels/device/place.hpp"

#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

namespace garonne::kernels::test {

// Serial and OpenMP, or CUDA.
const std::vector<device::Place>& places();

// Where two threads of the host share a team they meet so often that one type is enough.
inline std::vector<ElementType> types_at(const device::Place& place) {
  if (place.space == device::Space::OpenMp) return {ElementType::Float32};
  return {std::begin(all_types), std::end(all_types)};
}

// For messages.
std::string name_of(const device::Place& place);

// How many kernels `put` launches: loops over threads or teams; copies are none.
int launches_of(const std::function<void()>& put);

// An array of the host in the memory of a place; its values come back when this goes.
class OnPlace {
 public:
  OnPlace(const device::Place& place, Array& array)
      : OnPlace(place, array.data(), array.count() * element_bytes(array.type()), true) {}
  OnPlace(const device::Place& place, const Array& array)
      : OnPlace(place, const_cast<void*>(array.data()), array.count() * element_bytes(array.type()),
                false) {}
  template <typename T>
  OnPlace(const device::Place& place, std::vector<T>& values)
      : OnPlace(place, values.data(), static_cast<std::int64_t>(values.size() * sizeof(T)), true) {}
  template <typename T>
  OnPlace(const device::Place& place, const std::vector<T>& values)
      : OnPlace(place, const_cast<T*>(values.data()),
                static_cast<std::int64_t>(values.size() * sizeof(T)), false) {}
  ~OnPlace();
  OnPlace(const OnPlace&) = delete;
  OnPlace& operator=(const OnPlace&) = delete;

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  OnPlace(const device::Place& place, void* values, std::int64_t bytes, bool comes_back);

  [[maybe_unused]] void* host_;
  [[maybe_unused]] std::int64_t bytes_;
  [[maybe_unused]] bool comes_back_;
  void* data_;
};

// Counts of elements, rows or columns around what packs, groups and blocks hold.
inline constexpr std::int64_t odd_sizes[] = {1, 31, 32, 33, 999, 1000, 1001};

// The order in which Team::sum adds: values[i] belong to threads in turn, each adds its own in
// their order, beginning at 0; then pairs 16, 8, 4, 2, 1 apart within groups of 32, and groups in
// order.
template <typename G>
G sum_of_threads(const std::vector<G>& values, int threads) {
  std::vector<G> sums(static_cast<std::size_t>(threads), G{0});
  for (std::size_t i = 0; i < values.size(); ++i) sums[i % sums.size()] += values[i];
  G total = 0;
  for (std::size_t group = 0; group < sums.size(); group += 32) {
    for (std::size_t half = 16; half > 0; half /= 2) {
      for (std::size_t lane = 0; lane < half; ++lane)
        sums[group + lane] += sums[group + lane + half];
    }
    total = group == 0 ? sums[0] : total + sums[group];
  }
  return total;
}

}  // namespace garonne::kernels::test
