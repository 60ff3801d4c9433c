// What passes of nodes take where a graph records them, which no profile sees: it runs them outside
// of graphs.
#pragma once

#include <cstdint>

#include "nn/node.hpp"

namespace garonne::nn {

// Transient bytes of a forward on a GPU beside those that it takes outside of graphs. What nodes
// declare has them.
std::int64_t recorded_bytes(const Declaration& declaration, const plan::NodeSpec& node);

}  // namespace garonne::nn
