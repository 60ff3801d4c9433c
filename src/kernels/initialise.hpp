// Normal numbers, a function of (key, element of the global tensor): initial values of parameters,
// and noise.
#pragma once

#include "base/device.hpp"
#include "base/philox.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

// Normal numbers of mean 0 and the given deviation, by Box and Muller from the words of
// philox_at(key, step, sample, element / 4), computed in double and rounded to `type` (any).
// values[i] is element first_element + i of the tensor: the same bits however the tensor is cut,
// whatever the threads and whatever the processor (x86-64).
void fill_normal(const Queue& queue, ElementType type,
                 void* values,  // type [n]
                 std::int64_t n, PhiloxKey key, double deviation, std::int64_t first_element,
                 std::uint64_t step = 0, std::uint64_t sample = 0,
                 // Where not null, step and sample are read there, in the memory of the queue's
                 // device.
                 const std::uint64_t* step_place = nullptr,
                 const std::int64_t* sample_place = nullptr);

}  // namespace garonne::kernels
