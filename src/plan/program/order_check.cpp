#include "plan/program/order_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

// By lane: all its instructions below this number have ended.
using Clock = std::array<int, lane_count>;

void join(Clock& clock, const Clock& other) {
  for (std::size_t lane = 0; lane < clock.size(); ++lane)
    clock[lane] = std::max(clock[lane], other[lane]);
}

std::size_t of(Lane lane) {
  return static_cast<std::size_t>(lane);
}

// What of a buffer may still be under way.
struct Accesses {
  Lane written_on = Lane::Compute;
  int written_by = -1;
  Clock read_by{};  // by lane: the last reader since, and one; 0 = none
};

class OrderCheck {
 public:
  explicit OrderCheck(const Program& program)
      : program_(program),
        end_(program.instructions.size()),
        accesses_(program.buffers.size()),
        joined_(program.instructions.size(), false) {}

  void run() {
    for (number_ = 0; number_ < static_cast<int>(program_.instructions.size()); ++number_) step();
    for (std::size_t i = 0; i < joined_.size(); ++i) {
      number_ = static_cast<int>(i);
      if (program_.instructions[i].lane != Lane::Compute && !joined_[i])
        fail("is never waited for");
    }
  }

 private:
  const Instruction& instruction() const {
    return program_.instructions[static_cast<std::size_t>(number_)];
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw ReplayError(number_, describe(instruction()), reason);
  }

  const Clock& end_of(int earlier) const {
    if (earlier < 0 || earlier >= number_) fail("follows what does not come before it");
    return end_[static_cast<std::size_t>(earlier)];
  }

  void step() {
    const Lane lane = instruction().lane;
    Clock start = last_[of(lane)];
    join(start, last_[of(Lane::Compute)]);
    for (const int earlier : instruction().after) join(start, end_of(earlier));
    if (instruction().operation == Operation::Wait) wait(start);
    for (const int buffer : instruction().reads) read(buffer, start);
    for (const int buffer : instruction().writes) write(buffer, start, lane);
    Clock end = start;
    end[of(lane)] = number_ + 1;
    end_[static_cast<std::size_t>(number_)] = end;
    last_[of(lane)] = end;
    // It is Compute that frees, when it comes by.
    for (const int buffer : instruction().frees)
      write(buffer, last_[of(Lane::Compute)], Lane::Compute);
  }

  void wait(Clock& start) {
    const int waited = instruction().completes;
    join(start, end_of(waited));
    const auto place = static_cast<std::size_t>(waited);
    if (program_.instructions[place].lane == Lane::Compute || joined_[place])
      fail("waits for nothing that is under way");
    joined_[place] = true;
  }

  Accesses& accesses(int buffer) {
    if (buffer < 0 || static_cast<std::size_t>(buffer) >= accesses_.size())
      fail(fmt::format("no buffer has the id {}", buffer));
    return accesses_[static_cast<std::size_t>(buffer)];
  }

  void expect_ended(int earlier, Lane lane, const Clock& start, int buffer,
                    const char* what) const {
    if (earlier < 0 || start[of(lane)] > earlier) return;
    // Its own accesses are one.
    if (earlier == number_ && lane == instruction().lane && !freeing_own_) return;
    fail(fmt::format("{} {} while instruction {}, {}, may be under way on the lane {}", what,
                     program_.buffers[static_cast<std::size_t>(buffer)].name, earlier,
                     describe(program_.instructions[static_cast<std::size_t>(earlier)]),
                     to_string(lane)));
  }

  void read(int buffer, const Clock& start) {
    Accesses& all = accesses(buffer);
    expect_ended(all.written_by, all.written_on, start, buffer, "reads");
    int& reader = all.read_by[of(instruction().lane)];
    reader = std::max(reader, number_ + 1);
  }

  void write(int buffer, const Clock& start, Lane lane) {
    Accesses& all = accesses(buffer);
    expect_ended(all.written_by, all.written_on, start, buffer, "writes or frees");
    for (std::size_t reader = 0; reader < all.read_by.size(); ++reader) {
      expect_ended(all.read_by[reader] - 1, static_cast<Lane>(reader), start, buffer,
                   "writes or frees");
    }
    all = Accesses();
    all.written_by = number_;
    all.written_on = lane;
  }

  const Program& program_;
  int number_ = 0;
  bool freeing_own_ = false;
  std::array<Clock, lane_count> last_{};  // end of the last instruction of each lane
  std::vector<Clock> end_;                // by instruction
  std::vector<Accesses> accesses_;        // by buffer
  std::vector<bool> joined_;              // by instruction: it was waited for
};

}  // namespace

void check_order(const Program& program) {
  OrderCheck(program).run();
}

}  // namespace garonne::plan
