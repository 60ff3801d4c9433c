#include "plan/offload/paged_update.hpp"

#include <map>
#include <string>
#include <utility>

#include "plan/offload/host_update.hpp"
#include "plan/offload/paging.hpp"
#include "plan/program/lasting_home.hpp"

namespace garonne::plan {
namespace {

// The same groups in a list with other places.
std::vector<StateGroup> found_again(const Program& program, const std::vector<StateGroup>& groups) {
  std::map<int, StateGroup> by_buffer;
  for (StateGroup& group : state_groups(program, 0)) {
    for (const int buffer : group.buffers) by_buffer[buffer] = group;
  }
  std::vector<StateGroup> all;
  for (const StateGroup& group : groups) {
    StateGroup there = by_buffer.at(group.buffers.front());
    there.buffers = group.buffers;
    there.bytes = group.bytes;
    all.push_back(std::move(there));
  }
  return all;
}

// By buffer of the device.
std::map<int, int> pages_on_host(const Program& program, const std::vector<int>& pages) {
  std::map<std::string, int> named;
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    if (program.buffers[id].tier == Tier::Host)
      named[program.buffers[id].name] = static_cast<int>(id);
  }
  std::map<int, int> found;
  for (const int page : pages) {
    const auto lower =
        named.find(name_below(program.buffers[static_cast<std::size_t>(page)].name, Tier::Host));
    // A gradient that never has to leave, and is updated by the device, has none.
    if (lower != named.end()) found[page] = lower->second;
  }
  return found;
}

}  // namespace

std::optional<Program> with_paged_updates(Program program, const std::vector<int>& pages,
                                          const std::vector<StateGroup>& groups,
                                          const TierLinks& links, double bytes_per_second,
                                          std::int64_t budget_bytes) {
  auto paged = with_paging_for_updates(std::move(program), pages, groups, links, budget_bytes);
  if (!paged) return std::nullopt;
  const std::map<int, int> below = pages_on_host(*paged, pages);
  const std::vector<StateGroup> there = found_again(*paged, groups);
  return with_updates_on_host(std::move(*paged), there, links, bytes_per_second,
                              GradientCopies::AtTheEnd, below);
}

std::vector<std::int64_t> idle_bytes_of_updates(const Program& program,
                                                const std::vector<int>& pages,
                                                const std::vector<StateGroup>& groups) {
  std::vector<std::int64_t> bytes = idle_bytes_for_updates(program, pages, groups);
  for (const StateGroup& group : groups) {
    for (std::int64_t& one : bytes) one += group.bytes;
  }
  return bytes;
}

}  // namespace garonne::plan
