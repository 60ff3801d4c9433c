#include "exec/host_access.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "exec/device_tier.hpp"
#include "nn/tensor_options.hpp"

namespace garonne::exec {
namespace {

template <typename T>
void append(const void* data, std::int64_t elements, std::vector<double>& values) {
  const T* const first = static_cast<const T*>(data);
  std::transform(first, first + elements, std::back_inserter(values),
                 [](T value) { return static_cast<double>(value); });
}

// Numbers that are somewhere on the host.
void append(at::ScalarType type, const void* data, std::int64_t elements,
            std::vector<double>& values) {
  switch (type) {
    case at::kDouble:
      return append<double>(data, elements, values);
    case at::kFloat:
      return append<float>(data, elements, values);
    default:
      return append<at::BFloat16>(data, elements, values);
  }
}

// Wrapped, not made: what is loaded is not the tier's until it is converted.
at::Tensor wrapped(const void* data, at::IntArrayRef shape, at::ScalarType type) {
  return at::from_blob(const_cast<void*>(data), shape, nn::host_tensor_options(type));
}

}  // namespace

void copy_in(const at::Tensor& tensor, const std::vector<std::int64_t>& values) {
  std::memcpy(tensor.data_ptr<std::int64_t>(), values.data(), values.size() * sizeof(values[0]));
}

void copy_in(const at::Tensor& tensor, const std::vector<float>& values) {
  tensor.copy_(wrapped(values.data(), tensor.sizes(), at::kFloat));
}

void copy_in(const at::Tensor& tensor, const at::Tensor& host) {
  std::memcpy(tensor.data_ptr(), host.const_data_ptr(), host.nbytes());
}

void copy_in(const at::Tensor& tensor, const std::vector<std::int64_t>& values, Staging& staging,
             const std::string& activity) {
  copy_in(tensor, std::as_bytes(std::span(values)), staging, activity);
}

void copy_in(const at::Tensor& tensor, const std::vector<float>& values, Staging& staging,
             const std::string& activity) {
  const auto element = static_cast<std::int64_t>(tensor.element_size());
  staging.fill(
      tensor.data_ptr(), static_cast<std::int64_t>(tensor.nbytes()),
      [&](std::int64_t first, std::span<std::byte> piece) {
        const std::int64_t elements = static_cast<std::int64_t>(piece.size()) / element;
        wrapped(piece.data(), {elements}, tensor.scalar_type())
            .copy_(wrapped(values.data() + first / element, {elements}, at::kFloat));
      },
      activity);
}

void copy_in(const at::Tensor& tensor, std::span<const std::byte> bytes, Staging& staging,
             const std::string& activity) {
  staging.fill(
      tensor.data_ptr(), static_cast<std::int64_t>(bytes.size()),
      [&](std::int64_t first, std::span<std::byte> piece) {
        std::memcpy(piece.data(), bytes.data() + first, piece.size());
      },
      activity);
}

void write_to(std::span<std::byte> place, at::ScalarType type,
              const std::vector<std::int64_t>& values) {
  expect(type == at::kLong && place.size() == values.size() * sizeof(values[0]),
         "integers of another size than their place");
  std::memcpy(place.data(), values.data(), place.size());
}

void write_to(std::span<std::byte> place, at::ScalarType type, const std::vector<float>& values) {
  expect(place.size() == values.size() * c10::elementSize(type),
         "fields of another size than their place");
  const auto elements = static_cast<std::int64_t>(values.size());
  wrapped(place.data(), {elements}, type).copy_(wrapped(values.data(), {elements}, at::kFloat));
}

std::vector<double> read_from(std::span<const std::byte> place, at::ScalarType type) {
  std::vector<double> values;
  append(type, place.data(), static_cast<std::int64_t>(place.size() / c10::elementSize(type)),
         values);
  return values;
}

std::vector<double> copy_out(const at::Tensor& tensor) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(tensor.numel()));
  append(tensor.scalar_type(), tensor.const_data_ptr(), tensor.numel(), values);
  return values;
}

std::vector<double> copy_out(const at::Tensor& tensor, Staging& staging) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(tensor.numel()));
  const auto element = static_cast<std::int64_t>(tensor.element_size());
  staging.read(
      tensor.const_data_ptr(), static_cast<std::int64_t>(tensor.nbytes()),
      [&](std::span<const std::byte> piece) {
        append(tensor.scalar_type(), piece.data(),
               static_cast<std::int64_t>(piece.size()) / element, values);
      },
      "numbers for the host");
  return values;
}

at::Tensor copied_out(const at::Tensor& tensor, Staging& staging) {
  const HostScope host;
  at::Tensor copy = at::empty(tensor.sizes(), nn::host_tensor_options(tensor.scalar_type()));
  auto* to = static_cast<std::byte*>(copy.data_ptr());
  staging.read(
      tensor.const_data_ptr(), static_cast<std::int64_t>(tensor.nbytes()),
      [&](std::span<const std::byte> piece) {
        std::memcpy(to, piece.data(), piece.size());
        to += piece.size();
      },
      "a tensor for the host");
  return copy;
}

}  // namespace garonne::exec
