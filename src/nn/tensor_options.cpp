#include "nn/tensor_options.hpp"

namespace garonne::nn {

at::TensorOptions tensor_options(const Queue& queue, at::ScalarType type) {
  return host_tensor_options(type).device(queue.device == DeviceKind::Cuda ? at::kCUDA : at::kCPU);
}

at::TensorOptions host_tensor_options(at::ScalarType type) {
  return at::TensorOptions().dtype(type).device(at::kCPU);
}

}  // namespace garonne::nn
