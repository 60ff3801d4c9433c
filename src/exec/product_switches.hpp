// What the tensor library is told about the rounding of products on GPUs, in every build.
#pragma once

#include "base/product_rounding.hpp"

namespace garonne::exec {

// Products of float32 matrices on GPUs round as said from now on, in the whole process, whatever
// was said before and whatever the environment says.
void set_product_rounding(ProductRounding rounding);

// `value`: that of NVIDIA_TF32_OVERRIDE, which goes before every switch; null where it is not set.
// ConfigError where it would have products round otherwise than `rounding` says.
void check_rounding_override(const char* value, ProductRounding rounding);

}  // namespace garonne::exec
