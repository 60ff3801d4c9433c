#include "plan/program/order_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "base/lane.hpp"
#include "plan/program/replay.hpp"

namespace garonne::plan {
namespace {

// By lane: all its instructions below this number have ended.
using Clock = std::array<int, most_lanes>;

void join(Clock& clock, const Clock& other) {
  for (std::size_t lane = 0; lane < clock.size(); ++lane)
    clock[lane] = std::max(clock[lane], other[lane]);
}

std::size_t of(Lane lane) {
  return static_cast<std::size_t>(lane);
}

// What of a buffer may still be under way.
struct Accesses {
  int written_by = -1;
  std::vector<int> read_by;  // since; of lanes in order the last
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
    for (const int buffer : instruction().writes) write(buffer, start);
    Clock end = start;
    end[of(lane)] = number_ + 1;
    end_[static_cast<std::size_t>(number_)] = end;
    last_[of(lane)] = end;
    // It is Compute that frees, when it comes by.
    freeing_ = true;
    for (const int buffer : instruction().frees) write(buffer, last_[of(Lane::Compute)]);
    freeing_ = false;
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

  // Whether an earlier instruction has surely ended when this one starts, whose start is given.
  bool has_ended(int earlier, const Clock& start) const {
    const auto place = static_cast<std::size_t>(earlier);
    const Lane lane = program_.instructions[place].lane;
    if (kind_of(lane).ends_in_order) return start[of(lane)] > earlier;
    const auto& after = instruction().after;
    return joined_[place] || std::find(after.begin(), after.end(), earlier) != after.end();
  }

  void expect_ended(int earlier, const Clock& start, int buffer, const char* what) const {
    if (earlier < 0 || (earlier == number_ && !freeing_) || has_ended(earlier, start)) return;
    const Instruction& other = program_.instructions[static_cast<std::size_t>(earlier)];
    fail(fmt::format("{} {} while instruction {}, {}, may be under way on the lane {}", what,
                     program_.buffers[static_cast<std::size_t>(buffer)].name, earlier,
                     describe(other), to_string(other.lane)));
  }

  void read(int buffer, const Clock& start) {
    Accesses& all = accesses(buffer);
    expect_ended(all.written_by, start, buffer, "reads");
    std::erase_if(all.read_by, [&](int reader) {
      const Lane lane = program_.instructions[static_cast<std::size_t>(reader)].lane;
      return kind_of(lane).ends_in_order && lane == instruction().lane;
    });
    all.read_by.push_back(number_);
  }

  void write(int buffer, const Clock& start) {
    Accesses& all = accesses(buffer);
    const char* what = freeing_ ? "frees" : "writes";
    expect_ended(all.written_by, start, buffer, what);
    for (const int reader : all.read_by) expect_ended(reader, start, buffer, what);
    all.read_by.clear();
    // What is freed by Compute is gone for whatever is issued later.
    all.written_by = freeing_ ? -1 : number_;
  }

  const Program& program_;
  int number_ = 0;
  bool freeing_ = false;                  // what comes is no access of the instruction itself
  std::array<Clock, most_lanes> last_{};  // end of the last instruction of each lane
  std::vector<Clock> end_;                // by instruction
  std::vector<Accesses> accesses_;        // by buffer
  std::vector<bool> joined_;              // by instruction: it was waited for
};

}  // namespace

void check_order(const Program& program) {
  OrderCheck(program).run();
}

}  // namespace garonne::plan
