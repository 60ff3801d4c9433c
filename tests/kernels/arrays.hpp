// What the tests of kernels share: arrays of any element type seen as doubles, and the two thread
// counts.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <vector>

namespace garonne::kernels::test {

// An owned array of one element type, aligned to 64 bytes; elements read and written as doubles.
class Array {
 public:
  Array(ElementType type, std::int64_t count, double value = 0.0);

  ElementType type() const { return type_; }
  std::int64_t count() const { return count_; }
  void* data() { return bytes_.data(); }
  const void* data() const { return bytes_.data(); }
  double operator[](std::int64_t index) const;
  void set(std::int64_t index, double value);
  bool same_bits(const Array& other) const { return bytes_ == other.bytes_; }

 private:
  template <typename T>
  struct Aligned {
    using value_type = T;
    Aligned() = default;
    template <typename Other>
    explicit Aligned(const Aligned<Other>&) {}
    T* allocate(std::size_t n) {
      return static_cast<T*>(::operator new (n * sizeof(T), std::align_val_t{64}));
    }
    void deallocate(T* place, std::size_t) { ::operator delete (place, std::align_val_t{64}); }
    bool operator==(const Aligned&) const { return true; }
  };

  ElementType type_;
  std::int64_t count_;
  std::vector<unsigned char, Aligned<unsigned char>> bytes_;
};

// Numbers between -range and range that depend on the seed only, rounded to the type.
Array random_array(ElementType type, std::int64_t count, std::uint32_t seed, double range = 2.0);

std::vector<double> values_of(const Array& array);

// Half a unit in the last place of 1: 2^-24, 2^-53, 2^-8.
double rounding(ElementType type);

// Every element within `relative` * |wanted| + `absolute`.
void expect_near(const Array& got, const std::vector<double>& wanted, double relative,
                 double absolute, const std::string& what);

// Runs `make` with one and with two threads and expects equal bits.
void expect_thread_independent(const std::function<Array()>& make);

// Restricts the session of the test program.
void use_threads(int threads);

inline constexpr Queue host;

inline constexpr ElementType all_types[] = {ElementType::Float32, ElementType::Float64,
                                            ElementType::BFloat16};
inline constexpr ElementType wide_types[] = {ElementType::Float32, ElementType::Float64};

}  // namespace garonne::kernels::test
