// The only places where the host touches memory of the device: what a step is given and what it
// hands out. scripts/check-pointers leaves these alone. For the executor's own use.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace garonne::exec {

// Fills `tensor`, which has as many elements; 64-bit integers.
void copy_in(const at::Tensor& tensor, const std::vector<std::int64_t>& values);
// The same for fields, converted to the tensor's type.
void copy_in(const at::Tensor& tensor, const std::vector<float>& values);

// The same from a tensor of the host, of the same type. On any thread.
void copy_in(const at::Tensor& tensor, const at::Tensor& host);

// All elements of a tensor of any floating-point type, as double. The copy is the host's.
std::vector<double> copy_out(const at::Tensor& tensor);

}  // namespace garonne::exec
