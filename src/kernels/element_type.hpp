// The element types of kernels. A kernel reads and writes T and adds up in G, its accumulation
// type: float for Float32 and BFloat16, double for Float64.
#pragma once

#include <cstdint>

namespace garonne::kernels {

enum class ElementType { Float32, Float64, BFloat16 };

// Bytes of one element.
constexpr std::int64_t element_bytes(ElementType type) {
  return type == ElementType::Float64 ? 8 : type == ElementType::Float32 ? 4 : 2;
}

// G of `type`.
constexpr ElementType accumulation_type(ElementType type) {
  return type == ElementType::Float64 ? ElementType::Float64 : ElementType::Float32;
}

}  // namespace garonne::kernels
