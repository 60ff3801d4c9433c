#include "nn/layers/recorded_bytes.hpp"

namespace garonne::nn {

std::int64_t recorded_bytes(const Declaration& declaration, const plan::NodeSpec& node) {
  const bool attends = node.kind == "attention" || node.kind == "grouped_attention";
  if (!attends || declaration.precision != Precision::Float32) return 0;
  // Seed and offset of the memory-efficient method, elsewhere on the host.
  return 2 * declaration.allocation(1);
}

}  // namespace garonne::nn
