// Between the tensor library's types and the kernels'.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/number_type.hpp"
#include "base/precision.hpp"
#include "kernels/element_type.hpp"

namespace garonne::nn {

// Throws InternalError for a type that no kernel knows.
kernels::ElementType element_type_of(const at::Tensor& tensor);
kernels::ElementType element_type_of(Precision precision);
at::ScalarType scalar_type_of(NumberType type);
at::ScalarType compute_scalar_type(Precision precision);
at::ScalarType state_scalar_type(Precision precision);

}  // namespace garonne::nn
