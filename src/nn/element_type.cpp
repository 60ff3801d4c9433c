#include "nn/element_type.hpp"

#include "base/bytes.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

kernels::ElementType element_type_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return kernels::ElementType::Float32;
    case at::kDouble:
      return kernels::ElementType::Float64;
    case at::kBFloat16:
      return kernels::ElementType::BFloat16;
    default:
      throw InternalError("a tensor of a type that no kernel knows");
  }
}

kernels::ElementType element_type_of(Precision precision) {
  return precision == Precision::Float32   ? kernels::ElementType::Float32
         : precision == Precision::Float64 ? kernels::ElementType::Float64
                                           : kernels::ElementType::BFloat16;
}

at::ScalarType scalar_type_of(NumberType type) {
  switch (type) {
    case NumberType::Float32:
      return at::kFloat;
    case NumberType::Float64:
      return at::kDouble;
    case NumberType::BFloat16:
      return at::kBFloat16;
    case NumberType::Int64:
      break;
  }
  return at::kLong;
}

at::ScalarType compute_scalar_type(Precision precision) {
  return scalar_type_of(compute_type(precision));
}

at::ScalarType state_scalar_type(Precision precision) {
  return scalar_type_of(state_type(precision));
}

std::int64_t Declaration::allocation(std::int64_t bytes) const {
  return round_up(bytes, granularity);
}

std::int64_t Declaration::tensor(std::int64_t elements) const {
  return allocation(elements * element_bytes());
}

kernels::ElementType Context::element_type() const {
  return element_type_of(precision);
}

}  // namespace garonne::nn
