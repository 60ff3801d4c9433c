#include "plan/grid/communicating.hpp"

#include <string_view>

namespace garonne::plan {

CommunicatingSeconds communicating(const GridCandidate& candidate, const StepShape& step,
                                   const GroupLink& data, const CommunicatingChunk& chunk) {
  if (step.kernels.communication <= 0) return {};
  const auto sent = [&](std::string_view kind, std::int64_t bytes) {
    if (candidate.shape.data == 1) return 0.0;
    const LinkTraffic traffic = collective_traffic(kind, bytes, candidate.shape.data, data);
    return (traffic.inside + traffic.between) / static_cast<double>(chunk.chunks);
  };
  // Half of a message is of the one that sends it.
  double both = static_cast<double>(chunk.message_bytes) / 2;
  if (candidate.zero == 3)
    both += sent("all-gather", chunk.elements * step.element_bytes.parameter);
  const double reduced = sent(candidate.zero == 0 ? "all-reduce" : "reduce-scatter",
                              (chunk.elements - chunk.tied_elements) * step.gradient_wire_bytes());
  const double times =
      gradient_in_shards(candidate) ? 1 : static_cast<double>(candidate.micro_batches);
  return {step.kernels.communication * both, step.kernels.communication * (both + reduced / times)};
}

}  // namespace garonne::plan
