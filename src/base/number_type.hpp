// The types of the numbers in values, for those who know no tensor library.
#pragma once

#include <cstdint>

#include "base/precision.hpp"

namespace garonne {

enum class NumberType { Float32, Float64, BFloat16, Int64 };

constexpr const char* number_type_name(NumberType type) {
  switch (type) {
    case NumberType::Float32:
      return "float32";
    case NumberType::Float64:
      return "float64";
    case NumberType::BFloat16:
      return "bfloat16";
    case NumberType::Int64:
      break;
  }
  return "int64";
}

// Bytes of a number.
constexpr std::int64_t number_bytes(NumberType type) {
  return type == NumberType::BFloat16 ? 2 : type == NumberType::Float32 ? 4 : 8;
}

// What nodes compute in.
constexpr NumberType compute_type(Precision precision) {
  return precision == Precision::Float32   ? NumberType::Float32
         : precision == Precision::Float64 ? NumberType::Float64
                                           : NumberType::BFloat16;
}

// What gradients and optimizer states are kept in: float64 in float64, else float32.
constexpr NumberType state_type(Precision precision) {
  return precision == Precision::Float64 ? NumberType::Float64 : NumberType::Float32;
}

}  // namespace garonne
