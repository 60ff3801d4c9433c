#include "plan/offload/tier_moves.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/index.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

// For all that any Program moves, and sums of such do not overflow.
constexpr std::int64_t ample_bytes = std::numeric_limits<std::int64_t>::max() / 8;

// Of what has to leave the device: less than so many parts of it, and no more than so often it, are
// rooms of a tier that others are beside.
constexpr int least_part = 16;
constexpr int most_parts = 4;

// The same ones whoever asks, the largest first; each is half of the one before it.
std::vector<std::int64_t> rooms_between(std::int64_t least, std::int64_t most) {
  std::vector<std::int64_t> rooms;
  if (most <= 0) return rooms;
  std::int64_t room = 1;
  while (room < most) room *= 2;
  for (; room > 0 && room >= least; room /= 2) rooms.push_back(room);
  return rooms;
}

// Updates and what is summed for them may be elsewhere, and other sums in their place.
bool stays_where_it_is(const Instruction& instruction) {
  return instruction.operation != Operation::Update &&
         instruction.operation != Operation::SumTensors &&
         instruction.operation != Operation::SumSquares;
}

std::int64_t bytes_of_passes(const Program& program) {
  const std::vector<std::int64_t> during = replay(program).during_bytes;
  std::int64_t most = 0;
  for (std::size_t place = 0; place < during.size(); ++place) {
    if (stays_where_it_is(program.instructions[place])) most = std::max(most, during[place]);
  }
  return most;
}

}  // namespace

TierMoves::TierMoves(const Program& program, const LowerTiers& below, const Program* forward)
    : program_(program), below_(below), forward_(forward), ample_(below) {
  passes_bytes_ = bytes_of_passes(program);
  for (auto& [tier, lower] : ample_.tiers) {
    room_bytes_ += std::min(lower.budget_bytes, ample_bytes);
    lower.budget_bytes = ample_bytes;
  }
}

std::int64_t TierMoves::least_bytes() const {
  return Mover(program_, ample_, 0, nullptr).least_bytes();
}

bool TierMoves::can(std::int64_t budget_bytes) const {
  return in_all_ways(budget_bytes, [](const MovedProgram&) { return true; });
}

std::vector<MovedProgram> TierMoves::within(std::int64_t budget_bytes) const {
  std::vector<MovedProgram> all;
  in_all_ways(budget_bytes, [&](MovedProgram moved) {
    all.push_back(std::move(moved));
    return false;
  });
  return all;
}

bool TierMoves::in_all_ways(std::int64_t budget_bytes, const UseMoved& use) const {
  // What is not on the device during a pass, and used behind it, is below.
  const std::int64_t needed = passes_bytes_ - budget_bytes;
  if (needed > room_bytes_) return false;
  const UseMoved use_fitting = [&](MovedProgram moved) {
    return fits_tiers(below_.tiers, moved.prediction) && use(std::move(moved));
  };
  const auto mover = [&](const LowerTiers& rooms) {
    return Mover(program_, rooms, budget_bytes, forward_, &below_.tiers);
  };
  if (mover(ample_).in_all_ways(use_fitting)) return true;
  LowerTiers rooms = ample_;
  const bool has_two = rooms.tiers.size() > 1;
  std::int64_t& upper = rooms.tiers.begin()->second.budget_bytes;
  const auto in_part = [&] { return mover(rooms).in_part(use_fitting); };
  if (has_two) {
    for (const std::int64_t room : rooms_between(needed / least_part, needed)) {
      upper = room;
      if (in_part()) return true;
    }
    upper = 0;
    if (mover(rooms).in_all_ways(use_fitting)) return true;
  }
  for (const std::int64_t room : rooms_between(needed, needed * most_parts)) {
    rooms.tiers.rbegin()->second.budget_bytes = room;
    if (in_part()) return true;
  }
  return false;
}

}  // namespace garonne::plan
