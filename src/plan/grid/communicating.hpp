// What communication takes of the processor that computes, where it has to do both.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/grid/grid_candidate.hpp"
#include "plan/model/group_links.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

// Of a chunk of a device of a pipeline.
struct CommunicatingChunk {
  std::int64_t elements = 0;       // of parameters, of all chunks of the device
  std::int64_t tied_elements = 0;  // of these, what is summed when all passes are done
  std::size_t chunks = 1;
  std::int64_t message_bytes = 0;  // that come into it and go out of it in a forward
};

// Seconds of a micro-batch, beside each of its passes.
struct CommunicatingSeconds {
  double forward = 0;
  double backward = 0;
};

// As add_launches() has them (KernelSeconds::communication), reductions that there are once a step
// in even parts of its micro-batches.
CommunicatingSeconds communicating(const GridCandidate& candidate, const StepShape& step,
                                   const GroupLink& data, const CommunicatingChunk& chunk);

}  // namespace garonne::plan
