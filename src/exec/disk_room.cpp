#include "exec/disk_room.hpp"

#include <map>

#include "base/error.hpp"
#include "device/disk_tier.hpp"

namespace garonne::exec {

std::int64_t disk_file_bytes(const plan::Program& program, std::int64_t limit_bytes) {
  if (limit_bytes == 0) return 0;
  const auto places = device::places_on_disk(limit_bytes);
  std::map<int, void*> blocks;
  const auto buffer = [&](int id) -> const plan::Buffer& {
    return program.buffers[static_cast<std::size_t>(id)];
  };
  // What lasts is there before anything else, as make_buffers_on_disk() puts it.
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const plan::Buffer& lasting = program.buffers[id];
    if (!lasting.live_at_start || lasting.tier != Tier::Disk) continue;
    blocks[static_cast<int>(id)] = places->allocate(lasting.bytes);
    expect(blocks[static_cast<int>(id)] != nullptr, "no place on the disk within its limit");
  }
  for (const plan::Instruction& instruction : program.instructions) {
    const int to = instruction.arguments.output;
    if (is_copy(instruction.operation) && buffer(to).tier == Tier::Disk && !blocks.contains(to)) {
      blocks[to] = places->allocate(buffer(to).bytes);
      expect(blocks[to] != nullptr, "no place on the disk within its limit");
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
