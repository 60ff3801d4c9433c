// Rearrangements between fields and rows of patches.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nn/node.hpp"
#include "nn/operators/field_network.hpp"

namespace garonne::nn {

// Which channels a window takes from where; part of a cost key.
std::string window_key(const FieldWindow& window);

// The channels of a window on two axes -> [batch · rows / patch · columns / patch, channels · patch
// · patch], a row a square of points, channels slowest as in the weight of a convolution. Inputs:
// the window's values. With patch = 1 the window itself, channels last.
std::unique_ptr<Node> make_window_patches(const FieldShape& shape, std::int64_t batch,
                                          const FieldWindow& window, std::int64_t patch);

// [batch · rows / patch · columns / patch, patch · patch · channels], channels fastest -> [batch ·
// rows · columns, channels].
std::unique_ptr<Node> make_field_of_patches(const FieldShape& shape, std::int64_t batch,
                                            std::int64_t patch, std::int64_t channels);

}  // namespace garonne::nn
