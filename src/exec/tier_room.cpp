#include "exec/tier_room.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "device/tier_places.hpp"
#include "plan/program/rotated_step.hpp"

namespace garonne::exec {
namespace {

// A tier on which steps of a Program make and free their buffers.
class Places {
 public:
  Places(const plan::Program& program, Tier tier, std::int64_t limit_bytes)
      : program_(program), tier_(tier), places_(device::tier_places(limit_bytes)) {
    // What lasts is there before anything else, as make_buffers_below() puts it.
    for (std::size_t id = 0; id < program.buffers.size(); ++id) {
      if (program.buffers[id].live_at_start) make(static_cast<int>(id));
    }
  }

  // As they are now.
  Places copy() const { return {program_, tier_, places_->copy(), blocks_}; }

  // With what the step before has left to it, and, but for what is left of the last step, its own.
  void step(bool of_previous, bool own) {
    for (const plan::Instruction& instruction : program_.instructions) {
      if (!(instruction.of_previous_step ? of_previous : own)) continue;
      for (const int made : instruction.writes) make(made);
      for (const int freed : instruction.frees) free(freed);
    }
  }

  // Where everything is that is there.
  const std::map<int, void*>& blocks() const { return blocks_; }
  std::int64_t reach_bytes() const { return places_->reach_bytes(); }

 private:
  Places(const plan::Program& program, Tier tier, std::unique_ptr<device::FixedArena> places,
         std::map<int, void*> blocks)
      : program_(program), tier_(tier), places_(std::move(places)), blocks_(std::move(blocks)) {}

  const plan::Buffer& buffer(int id) const {
    return program_.buffers[static_cast<std::size_t>(id)];
  }

  void make(int id) {
    if (buffer(id).tier != tier_ || blocks_.contains(id)) return;
    blocks_[id] = places_->allocate(buffer(id).bytes);
    expect(blocks_[id] != nullptr, "no place on the tier within its limit");
  }

  void free(int id) {
    const auto found = blocks_.find(id);
    if (found == blocks_.end()) return;
    places_->release(found->second, buffer(id).bytes);
    blocks_.erase(found);
  }

  const plan::Program& program_;
  const Tier tier_;
  std::unique_ptr<device::FixedArena> places_;
  std::map<int, void*> blocks_;
};

}  // namespace

std::int64_t tier_room(const plan::Program& program, Tier tier, std::int64_t limit_bytes) {
  if (limit_bytes == 0) return 0;
  Places places(program, tier, limit_bytes);
  const bool rotated = plan::is_rotated(program);
  // What is carried is where there was room for it, until that is where it has been before.
  std::set<std::map<int, void*>> seen;
  std::int64_t bytes = 0;
  for (std::int64_t steps = 1; steps <= most_steps_in_a_row; ++steps) {
    places.step(/*of_previous=*/steps > 1, /*own=*/true);
    bytes = std::max(bytes, places.reach_bytes());
    if (!rotated || !seen.insert(places.blocks()).second) break;
    Places flushed = places.copy();
    flushed.step(/*of_previous=*/true, /*own=*/false);
    bytes = std::max(bytes, flushed.reach_bytes());
  }
  return bytes;
}

}  // namespace garonne::exec
