// Parts of what a Program may move, for sources of the mover.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/offload/host_update.hpp"
#include "plan/offload/state_offload.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

inline constexpr std::array<GradientCopies, 2> gradient_copies = {GradientCopies::WhenComplete,
                                                                  GradientCopies::AtTheEnd};

inline std::int64_t bytes_of(const Program& program, const std::vector<int>& buffers) {
  std::int64_t bytes = 0;
  for (const int id : buffers) bytes += program.buffers[static_cast<std::size_t>(id)].bytes;
  return bytes;
}

inline std::vector<StateGroup> first_of(const std::vector<StateGroup>& groups, std::size_t count) {
  return {groups.begin(), groups.begin() + static_cast<std::ptrdiff_t>(count)};
}

inline std::vector<int> buffers_of(const std::vector<StateGroup>& groups) {
  std::vector<int> buffers;
  for (const StateGroup& group : groups)
    buffers.insert(buffers.end(), group.buffers.begin(), group.buffers.end());
  return buffers;
}

// Of units that have buffers the first ones'.
template <class Units>
std::vector<int> buffers_of(const Units& units, std::size_t count) {
  std::vector<int> buffers;
  for (std::size_t k = 0; k < count; ++k)
    buffers.insert(buffers.end(), units[k].buffers.begin(), units[k].buffers.end());
  return buffers;
}

}  // namespace garonne::plan
