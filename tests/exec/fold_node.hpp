// A node as an exercise, which can be kept in two ways: what is below zero is folded up. Its
// backward needs the signs of its input. The first way pins the input for them; the other keeps
// them, a byte an element, and the input goes. Both come to the same bits.
#pragma once

#include <cstdint>
#include <memory>

#include "nn/node.hpp"

namespace garonne::exec {

// The number of the way that keeps signs.
inline constexpr int kept_signs = 1;

// x [rows, columns] -> |x|, on the host.
std::unique_ptr<nn::Node> make_fold(std::int64_t rows, std::int64_t columns);

}  // namespace garonne::exec
