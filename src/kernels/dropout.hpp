// Dropout without a stored mask: the mask of an element is a function of (key, step, sample,
// element), so backward, recomputation, another cut of the batch and another grid all meet the same
// one.
#pragma once

#include "base/device.hpp"
#include "base/philox.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

struct Dropout {
  PhiloxKey key;
  std::uint32_t threshold = 0;  // dropout_threshold(probability); 0 = off (scale is then not used)
  double scale = 1.0;           // 1 / (1 - probability)
  std::uint64_t step = 0;
  // Where the first element handed in stands in [all samples, elements of a sample]; not 0 where
  // the tensor is cut over ranks.
  std::int64_t first_element = 0;
  // Where not null, the step is read there, in the memory of the queue's device: for kernels that
  // are recorded once and carried out in many steps.
  const std::uint64_t* step_place = nullptr;
};

// out = residual + (word >= threshold ? x * scale : 0), where the word of element e of sample s is
// philox_at(key, step, s, e / 4).word[e % 4]. The backward is the same call with the gradient as x.
// `out` may alias neither input. All tensors are `elements` long: whole samples, or a piece of them
// that begins at dropout.first_element.
void dropout_add(const Queue& queue, ElementType type,
                 const void* residual,  // T [elements] or null (= 0)
                 const void* x,         // T [elements]
                 void* out,             // T [elements]
                 const Dropout& dropout,
                 const std::int64_t* samples,  // [batch], may be null when dropout is off
                 std::int64_t elements, std::int64_t elements_per_sample);

}  // namespace garonne::kernels
