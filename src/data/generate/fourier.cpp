#include "data/generate/fourier.hpp"

// Ranks share the work; plans of the few sizes in use are kept.
#define POCKETFFT_NO_MULTITHREADING
#define POCKETFFT_CACHE_SIZE 16
#include <pocketfft_hdronly.h>

#include "base/error.hpp"

namespace garonne::data {
namespace {

using pocketfft::shape_t;
using pocketfft::stride_t;

std::size_t size(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

// Bytes from element to element along each axis of an array in C order.
template <typename T>
stride_t strides(const shape_t& shape) {
  stride_t result(shape.size());
  auto stride = static_cast<std::ptrdiff_t>(sizeof(T));
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    result[axis] = stride;
    stride *= static_cast<std::ptrdiff_t>(shape[axis]);
  }
  return result;
}

std::size_t elements(const shape_t& shape) {
  std::size_t count = 1;
  for (const std::size_t length : shape) count *= length;
  return count;
}

void forward(const shape_t& shape, const shape_t& axes, std::span<const double> values,
             std::span<Complex> spectrum) {
  shape_t half = shape;
  half.back() = half.back() / 2 + 1;
  expect(values.size() == elements(shape) && spectrum.size() == elements(half),
         "forward transform: sizes");
  pocketfft::r2c(shape, strides<double>(shape), strides<Complex>(half), axes, pocketfft::FORWARD,
                 values.data(), spectrum.data(), 1.0);
}

void inverse(const shape_t& shape, const shape_t& axes, std::span<const Complex> spectrum,
             std::span<double> values, double factor) {
  shape_t half = shape;
  half.back() = half.back() / 2 + 1;
  expect(values.size() == elements(shape) && spectrum.size() == elements(half),
         "inverse transform: sizes");
  pocketfft::c2r(shape, strides<Complex>(half), strides<double>(shape), axes, pocketfft::BACKWARD,
                 spectrum.data(), values.data(), factor);
}

}  // namespace

void forward_real_plane(std::int64_t fields, std::int64_t rows, std::int64_t columns,
                        std::span<const double> values, std::span<Complex> spectrum) {
  forward({size(fields), size(rows), size(columns)}, {1, 2}, values, spectrum);
}

void inverse_real_plane(std::int64_t fields, std::int64_t rows, std::int64_t columns,
                        std::span<const Complex> spectrum, std::span<double> values) {
  inverse({size(fields), size(rows), size(columns)}, {1, 2}, spectrum, values,
          1.0 / static_cast<double>(rows * columns));
}

void forward_real_rows(std::int64_t rows, std::int64_t columns, std::span<const double> values,
                       std::span<Complex> spectrum) {
  forward({size(rows), size(columns)}, {1}, values, spectrum);
}

void synthesise_real_rows(std::int64_t rows, std::int64_t columns,
                          std::span<const Complex> spectrum, std::span<double> values) {
  inverse({size(rows), size(columns)}, {1}, spectrum, values, 1.0);
}

void inverse_cosine_plane(std::int64_t rows, std::int64_t columns, std::span<double> values) {
  const shape_t shape = {size(rows), size(columns)};
  expect(values.size() == elements(shape), "cosine transform: sizes");
  const stride_t stride = strides<double>(shape);
  // Type III is the inverse of type II; orthonormal with 1/√(2n) in each direction.
  const double factor = 0.5 / std::sqrt(static_cast<double>(rows * columns));
  pocketfft::dct(shape, stride, stride, {0, 1}, 3, values.data(), values.data(), factor,
                 /*ortho=*/true);
}

}  // namespace garonne::data
