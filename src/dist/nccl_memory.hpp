// What NCCL takes of the memory of a device, which is of no budget.
#pragma once

#include <cstdint>
#include <vector>

namespace garonne::dist {

// Of a connection of two ranks over NCCL, each with buffers on both devices. Powers of two.
inline constexpr int nccl_lane_channels = 4;   // of a lane of messages
inline constexpr int nccl_world_channels = 1;  // of what sums some numbers a step
// Of groups that sum and gather tensors, in which each member sends to each: 8, and the fewer the
// more members there are, so that buffers of all peers together stay about as large from 9 members
// on; at least 1.
int nccl_channels(int members);

// What a rank has of a group.
struct NcclGroup {
  int members = 1;
  int channels = 1;
  // Each member sends to each; else to its neighbours of a ring alone.
  bool all_to_all = true;
  int lanes = 0;  // of messages, of which this rank is an end
};

// What NCCL takes of a rank's device for its groups, at most; 0 where all are of one member.
std::int64_t nccl_bytes(const std::vector<NcclGroup>& groups);

}  // namespace garonne::dist
