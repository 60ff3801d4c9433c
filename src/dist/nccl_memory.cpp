#include "dist/nccl_memory.hpp"

namespace garonne::dist {
namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

// Of each channel to and from a peer, on the device. Its receiver has a buffer for each protocol:
// 4 MiB (NCCL_BUFFSIZE), 4.7 MiB (LL128) and 0.5 MiB (LL), in blocks of 2 MiB; its sender has one
// block.
constexpr std::int64_t channel_bytes = (10 + 2) * mebibyte;
// Of a communicator, whatever it is connected to.
constexpr std::int64_t communicator_bytes = 16 * mebibyte;
// Of a process: code of kernels.
constexpr std::int64_t code_bytes = 256 * mebibyte;

constexpr int most_channels = 8;

}  // namespace

int nccl_channels(int members) {
  int channels = most_channels;
  for (int peers = most_channels; channels > 1 && members - 1 > peers; peers *= 2) channels /= 2;
  return channels;
}

std::int64_t nccl_bytes(const std::vector<NcclGroup>& groups) {
  std::int64_t bytes = 0;
  for (const NcclGroup& group : groups) {
    if (group.members < 2) continue;
    const std::int64_t peers = group.all_to_all ? group.members - 1 : 0;
    constexpr std::int64_t ring = 1;  // a neighbour on either side, of which one sends
    bytes += communicator_bytes + (peers + ring) * group.channels * channel_bytes;
    bytes += group.lanes * (communicator_bytes + nccl_lane_channels * channel_bytes);
  }
  return bytes == 0 ? 0 : code_bytes + bytes;
}

}  // namespace garonne::dist
