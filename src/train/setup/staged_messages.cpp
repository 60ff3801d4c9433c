#include "train/setup/staged_messages.hpp"

#include <algorithm>

#include "base/bytes.hpp"
#include "base/index.hpp"
#include "device/tier_memory.hpp"

namespace garonne::train {
namespace {

// Of what meets other ranks: data and the staging of sums are one block.
std::int64_t bytes_of(const plan::Program& program, const plan::Instruction& instruction) {
  if (!instruction.channel) return 0;
  const int staging = instruction.arguments.staging;
  std::int64_t bytes = instruction.channel->bytes;
  for (const auto* buffers : {&instruction.reads, &instruction.writes}) {
    for (const int id : *buffers) {
      if (id != staging) bytes = std::max(bytes, program.buffers[as_index(id)].bytes);
    }
  }
  if (staging >= 0) bytes += program.buffers[as_index(staging)].bytes;
  return round_up(bytes + cpu_allocation_granularity, device::host_allocation_granularity);
}

}  // namespace

std::int64_t staged_bytes(const plan::Program& program) {
  std::int64_t under_way = 0;
  std::int64_t most = 0;
  for (const plan::Instruction& instruction : program.instructions) {
    const std::int64_t bytes = bytes_of(program, instruction);
    under_way += bytes;
    most = std::max(most, under_way);
    // What is on Compute has ended when the next one begins.
    if (instruction.lane == Lane::Compute) under_way -= bytes;
    if (instruction.operation == plan::Operation::Wait)
      under_way -= bytes_of(program, program.instructions[as_index(instruction.completes)]);
  }
  return round_up(most + most / 8, device::host_allocation_granularity);
}

}  // namespace garonne::train
