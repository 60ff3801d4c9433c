// Where tensors are made: the one place that says in whose memory a new tensor is.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/device.hpp"

namespace garonne::nn {

// Of a tensor of the type in the memory of the queue's device. Of several GPUs it is the one that
// the calling thread works on.
at::TensorOptions tensor_options(const Queue& queue, at::ScalarType type);

// Of a tensor in the memory of the host, whatever the device.
at::TensorOptions host_tensor_options(at::ScalarType type);

}  // namespace garonne::nn
