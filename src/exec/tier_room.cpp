#include "exec/tier_room.hpp"

#include <map>

#include "base/error.hpp"
#include "device/tier_places.hpp"

namespace garonne::exec {

std::int64_t tier_room(const plan::Program& program, Tier tier, std::int64_t limit_bytes) {
  if (limit_bytes == 0) return 0;
  const auto places = device::tier_places(limit_bytes);
  std::map<int, void*> blocks;
  const auto buffer = [&](int id) -> const plan::Buffer& {
    return program.buffers[static_cast<std::size_t>(id)];
  };
  // What lasts is there before anything else, as make_buffers_below() puts it.
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const plan::Buffer& lasting = program.buffers[id];
    if (!lasting.live_at_start || lasting.tier != tier) continue;
    blocks[static_cast<int>(id)] = places->allocate(lasting.bytes);
    expect(blocks[static_cast<int>(id)] != nullptr, "no place on the tier within its limit");
  }
  for (const plan::Instruction& instruction : program.instructions) {
    for (const int made : instruction.writes) {
      if (buffer(made).tier != tier || blocks.contains(made)) continue;
      blocks[made] = places->allocate(buffer(made).bytes);
      expect(blocks[made] != nullptr, "no place on the tier within its limit");
    }
    for (const int freed : instruction.frees) {
      const auto found = blocks.find(freed);
      if (found == blocks.end()) continue;
      places->release(found->second, buffer(freed).bytes);
      blocks.erase(found);
    }
  }
  return places->reach_bytes();
}

}  // namespace garonne::exec
