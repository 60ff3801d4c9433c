// The number types of a run: what nodes compute in and what gradients and optimizer states are kept
// in.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.hpp"

namespace garonne {

enum class Precision { Float32, Float64, BFloat16 };

inline Precision parse_precision(const std::string& name) {
  if (name == "float32") return Precision::Float32;
  if (name == "float64") return Precision::Float64;
  if (name == "bfloat16") return Precision::BFloat16;
  throw ConfigError("train.precision", name, "must be float32, float64 or bfloat16");
}

constexpr const char* precision_name(Precision precision) {
  return precision == Precision::Float32   ? "float32"
         : precision == Precision::Float64 ? "float64"
                                           : "bfloat16";
}

// Bytes of an element of values and of the parameters that nodes read.
constexpr std::int64_t compute_bytes(Precision precision) {
  return precision == Precision::Float32 ? 4 : precision == Precision::Float64 ? 8 : 2;
}

// Bytes of an element of gradients, moments and masters: float64 in float64, else float32.
constexpr std::int64_t state_bytes(Precision precision) {
  return precision == Precision::Float64 ? 8 : 4;
}

// bfloat16 is a compute copy: a float32 master is kept beside it.
constexpr bool has_master(Precision precision) {
  return precision == Precision::BFloat16;
}

}  // namespace garonne
