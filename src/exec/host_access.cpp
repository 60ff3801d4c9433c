#include "exec/host_access.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>

#include "nn/tensor_options.hpp"

namespace garonne::exec {
namespace {

template <typename T>
std::vector<double> values_of(const at::Tensor& tensor) {
  const T* const first = tensor.const_data_ptr<T>();
  std::vector<double> values(static_cast<std::size_t>(tensor.numel()));
  std::transform(first, first + tensor.numel(), values.begin(),
                 [](T value) { return static_cast<double>(value); });
  return values;
}

}  // namespace

void copy_in(const at::Tensor& tensor, const std::vector<std::int64_t>& values) {
  std::memcpy(tensor.data_ptr<std::int64_t>(), values.data(), values.size() * sizeof(values[0]));
}

void copy_in(const at::Tensor& tensor, const std::vector<float>& values) {
  // Wrapped, not made: what is loaded is not the tier's until it is converted.
  tensor.copy_(at::from_blob(const_cast<float*>(values.data()), tensor.sizes(),
                             nn::host_tensor_options(at::kFloat)));
}

void copy_in(const at::Tensor& tensor, const at::Tensor& host) {
  std::memcpy(tensor.data_ptr(), host.const_data_ptr(), host.nbytes());
}

std::vector<double> copy_out(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return values_of<double>(tensor);
    case at::kFloat:
      return values_of<float>(tensor);
    default:
      return values_of<at::BFloat16>(tensor);
  }
}

}  // namespace garonne::exec
