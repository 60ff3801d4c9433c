// The only places where the host touches memory of the device: what a step is given and what it
// hands out. scripts/check-pointers leaves these alone. For the executor's own use.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/staging.hpp"

namespace garonne::exec {

// Fills `tensor`, which has as many elements; 64-bit integers.
void copy_in(const at::Tensor& tensor, const std::vector<std::int64_t>& values);
// The same for fields, converted to the tensor's type.
void copy_in(const at::Tensor& tensor, const std::vector<float>& values);

// The same from a tensor of the host, of the same type. On any thread.
void copy_in(const at::Tensor& tensor, const at::Tensor& host);

// The same for a tensor of a GPU: `tensor` is filled when Compute comes to it.
void copy_in(const at::Tensor& tensor, const std::vector<std::int64_t>& values, Staging& staging,
             const std::string& activity);
void copy_in(const at::Tensor& tensor, const std::vector<float>& values, Staging& staging,
             const std::string& activity);
// The first bytes of `tensor`, which has no other type than that, from memory of the host.
void copy_in(const at::Tensor& tensor, std::span<const std::byte> bytes, Staging& staging,
             const std::string& activity);

// Writes what copy_in would copy into memory of the host, for elements of a type.
void write_to(std::span<std::byte> place, at::ScalarType type,
              const std::vector<std::int64_t>& values);
void write_to(std::span<std::byte> place, at::ScalarType type, const std::vector<float>& values);
// What copy_out gives of elements that lie in memory of the host.
std::vector<double> read_from(std::span<const std::byte> place, at::ScalarType type);

// All elements of a tensor of any floating-point type, as double. The copy is the host's.
std::vector<double> copy_out(const at::Tensor& tensor);
// Of a tensor of a GPU.
std::vector<double> copy_out(const at::Tensor& tensor, Staging& staging);
// A contiguous tensor of a GPU as one of the host, beside all tiers.
at::Tensor copied_out(const at::Tensor& tensor, Staging& staging);

}  // namespace garonne::exec
