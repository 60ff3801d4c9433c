// kernels/attention_tile.hpp on a device; the same masks as on CPUs.
#pragma once

#include "kernels/attention_tile.hpp"
#include "kernels/device/place.hpp"

#include <cstdint>

namespace garonne::kernels::device {

void attention_weights(const Place& place, ElementType type, const AttentionTile& tile,
                       void* scores, void* log_sums, const Dropout& dropout,
                       const std::int64_t* samples);
void attention_weights_gradient(const Place& place, ElementType type, const AttentionTile& tile,
                                void* scores, void* gradient, const void* log_sums,
                                const Dropout& dropout, const std::int64_t* samples);

}  // namespace garonne::kernels::device
