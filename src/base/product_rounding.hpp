// How products of matrices of float32 numbers round what they multiply, on devices that have a
// choice: GPUs.
#pragma once

#include <string>

#include "base/error.hpp"

namespace garonne {

// As IEEE numbers, or to TF32, which has the range of float32 and 10 bits of its fraction. Sums are
// float32 in both.
enum class ProductRounding { Ieee, Tf32 };

inline ProductRounding parse_product_rounding(const std::string& name) {
  if (name == "ieee") return ProductRounding::Ieee;
  if (name == "tf32") return ProductRounding::Tf32;
  throw ConfigError("train.products", name, "must be ieee or tf32");
}

constexpr const char* product_rounding_name(ProductRounding rounding) {
  return rounding == ProductRounding::Ieee ? "ieee" : "tf32";
}

}  // namespace garonne
