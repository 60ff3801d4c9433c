// Rotary positions (Su et al. 2021) in the form of Llama: number i of a head and number i + half of
// it are turned by the angle position * theta^(-2 i / head size).
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>
#include <vector>

namespace garonne::kernels {

// The heads of a row, one after the other: `groups` times so many that are turned and so many that
// are copied.
struct RotaryHeads {
  std::int64_t groups = 0;
  std::int64_t rotated = 0;
  std::int64_t copied = 0;
  std::int64_t head_size = 0;  // even
  std::int64_t width() const { return groups * (rotated + copied) * head_size; }
};

// [sequence, 2, head_size / 2]: cosines, then sines, of each position. Angles are products of
// float32 numbers, as in the models that are trained elsewhere.
std::vector<float> rotary_table(std::int64_t sequence, std::int64_t head_size, double theta);

// Turns back where `back`, which is what a backward does. y may be x.
void rotate_heads(const Queue& queue, ElementType type,
                  const void* x,       // T [rows, heads.width()]
                  const float* table,  // rotary_table of `sequence` positions; row r has position
                                       // r modulo sequence
                  void* y,             // T [rows, heads.width()]
                  const RotaryHeads& heads, bool back, std::int64_t rows, std::int64_t sequence);

}  // namespace garonne::kernels
