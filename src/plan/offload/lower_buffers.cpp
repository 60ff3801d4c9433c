#include "plan/offload/lower_buffers.hpp"

#include <utility>

#include "base/bytes.hpp"
#include "plan/program/lasting_home.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {

int add_below(Program& program, int buffer, Tier tier) {
  Buffer lower = program.buffers[static_cast<std::size_t>(buffer)];
  lower.name = name_below(lower.name, tier);
  lower.bytes = round_up(lower.bytes, program.tier(tier).granularity);
  lower.tier = tier;
  program.buffers.push_back(std::move(lower));
  return static_cast<int>(program.buffers.size()) - 1;
}

int put_below(Program& program, int buffer, Tier tier) {
  const int lower = add_below(program, buffer, tier);
  Buffer& upper = program.buffers[static_cast<std::size_t>(buffer)];
  upper.live_at_start = false;
  upper.live_at_end = false;
  return lower;
}

void set_replayed(Program& program) {
  const Prediction prediction = replay(program);
  program.peak_bytes = prediction.peak_bytes;
  program.seconds = prediction.seconds;
}

}  // namespace garonne::plan
