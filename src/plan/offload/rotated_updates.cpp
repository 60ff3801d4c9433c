#include "plan/offload/rotated_updates.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/contains.hpp"
#include "base/index.hpp"
#include "plan/offload/lower_buffers.hpp"
#include "plan/program/rotated_step.hpp"

namespace garonne::plan {
namespace {

// What an instruction does with buffers; a wait, what was under way with them.
struct Touched {
  std::vector<int> read;
  std::vector<int> changed;
};

// By buffer: the least place of those that use it, and of those that change it.
class Deadlines {
 public:
  Deadlines(std::size_t buffers, int none) : of_use_(buffers, none), of_change_(buffers, none) {}

  // Before which of the noted ones an instruction has to come.
  int before(const Touched& touched, int at_most) const {
    for (const int id : touched.read) at_most = std::min(at_most, of_change_[as_index(id)]);
    for (const int id : touched.changed) at_most = std::min(at_most, of_use_[as_index(id)]);
    return at_most;
  }

  void note(const Touched& touched, int place) {
    for (const int id : touched.read) lower(of_use_, id, place);
    for (const int id : touched.changed) {
      lower(of_use_, id, place);
      lower(of_change_, id, place);
    }
  }

 private:
  static void lower(std::vector<int>& places, int id, int place) {
    places[as_index(id)] = std::min(places[as_index(id)], place);
  }

  std::vector<int> of_use_;
  std::vector<int> of_change_;
};

class Rotation {
 public:
  explicit Rotation(Program program)
      : program_(std::move(program)),
        left_(program_.instructions.size(), false),
        deadline_(program_.instructions.size(), 0),
        place_(program_.instructions.size(), 0) {}

  std::optional<Program> rotated() {
    find_left();
    if (leftovers_.empty()) return std::nullopt;
    take_frees();
    if (!carry()) return std::nullopt;
    forget_this_step();
    find_deadlines();
    find_places();
    put_in_order();
    set_replayed(program_);
    return std::move(program_);
  }

 private:
  Instruction& at(int number) { return program_.instructions[as_index(number)]; }
  const Instruction& at(int number) const { return program_.instructions[as_index(number)]; }
  int count() const { return static_cast<int>(program_.instructions.size()); }
  bool is_left(int number) const { return left_[as_index(number)]; }

  Touched touched_by(const Instruction& one) const {
    Touched touched{one.reads, one.writes};
    touched.changed.insert(touched.changed.end(), one.frees.begin(), one.frees.end());
    if (one.operation == Operation::Wait) {
      const Instruction& waited = at(one.completes);
      touched.read.insert(touched.read.end(), waited.reads.begin(), waited.reads.end());
      touched.changed.insert(touched.changed.end(), waited.writes.begin(), waited.writes.end());
    }
    return touched;
  }

  // Updates on the host, and what follows from them: who names one, and who meets what it makes.
  void find_left() {
    std::vector<bool> made(program_.buffers.size(), false);
    for (int i = 0; i < count(); ++i) {
      const Instruction& one = at(i);
      const auto is_made = [&](int id) { return made[as_index(id)]; };
      const bool follows =
          std::any_of(one.reads.begin(), one.reads.end(), is_made) ||
          std::any_of(one.writes.begin(), one.writes.end(), is_made) ||
          std::any_of(one.after.begin(), one.after.end(), [&](int n) { return is_left(n); }) ||
          (one.completes >= 0 && is_left(one.completes));
      if (one.operation != Operation::UpdateHost && !follows) continue;
      left_[as_index(i)] = true;
      leftovers_.push_back(i);
      for (const int id : one.writes) made[as_index(id)] = true;
    }
  }

  // What they use is freed behind the last of them, whoever freed it before.
  void take_frees() {
    std::vector<bool> used(program_.buffers.size(), false);
    for (const int number : leftovers_) {
      for (const auto* ids : {&at(number).reads, &at(number).writes}) {
        for (const int id : *ids) used[as_index(id)] = true;
      }
    }
    for (int i = 0; i < count(); ++i) {
      if (is_left(i)) continue;
      std::erase_if(at(i).frees, [&](int id) {
        if (used[as_index(id)]) freed_.push_back(id);
        return used[as_index(id)];
      });
    }
  }

  // What this step makes for them; false where that is not on the host.
  bool carry() {
    std::vector<bool> made(program_.buffers.size(), false);
    for (int i = 0; i < count(); ++i) {
      if (is_left(i)) continue;
      for (const int id : at(i).writes) made[as_index(id)] = true;
    }
    for (const int number : leftovers_) {
      const Touched touched = touched_by(at(number));
      for (const auto* ids : {&touched.read, &touched.changed}) {
        for (const int id : *ids) {
          Buffer& buffer = program_.buffers[as_index(id)];
          if (buffer.live_at_start || !made[as_index(id)]) continue;
          if (buffer.tier != Tier::Host) return false;
          buffer.carried = true;
        }
      }
    }
    return true;
  }

  // What came before them in their step has ended with it.
  void forget_this_step() {
    for (const int number : leftovers_) {
      at(number).of_previous_step = true;
      std::erase_if(at(number).after, [&](int earlier) { return !is_left(earlier); });
    }
  }

  // Before which instruction of the next step each of them has to have come, itself or as what
  // follows from it.
  void find_deadlines() {
    Deadlines of_next(program_.buffers.size(), count());
    int reported = count();
    for (int i = count() - 1; i >= 0; --i) {
      if (is_left(i)) continue;
      of_next.note(touched_by(at(i)), i);
      if (at(i).operation == Operation::Report) reported = i;
    }
    Deadlines of_left(program_.buffers.size(), count());
    std::vector<int> of_names(program_.instructions.size(), count());
    for (auto number = leftovers_.rbegin(); number != leftovers_.rend(); ++number) {
      const Instruction& one = at(*number);
      const Touched touched = touched_by(one);
      const int named = std::min(reported, of_names[as_index(*number)]);
      const int deadline = of_left.before(touched, of_next.before(touched, named));
      deadline_[as_index(*number)] = deadline;
      of_left.note(touched, deadline);
      const auto name = [&](int other) {
        of_names[as_index(other)] = std::min(of_names[as_index(other)], deadline);
      };
      for (const int earlier : one.after) name(earlier);
      if (one.completes >= 0) name(one.completes);
    }
  }

  // Before which instruction each of them stands: as late as it may where Compute comes by, as
  // soon as it can on a lane of its own.
  void find_places() {
    std::vector<int> of_use(program_.buffers.size(), 0);
    std::vector<int> of_change(program_.buffers.size(), 0);
    for (const int number : leftovers_) {
      const Instruction& one = at(number);
      const Touched touched = touched_by(one);
      int place = one.lane == Lane::Compute ? deadline_[as_index(number)] : 0;
      const auto behind = [&place](int other) { place = std::max(place, other); };
      for (const int id : touched.read) behind(of_change[as_index(id)]);
      for (const int id : touched.changed) behind(of_use[as_index(id)]);
      for (const int earlier : one.after) behind(place_[as_index(earlier)]);
      place_[as_index(number)] = place;
      const auto note = [place](int& last) { last = std::max(last, place); };
      for (const int id : touched.read) note(of_use[as_index(id)]);
      for (const int id : touched.changed) {
        note(of_use[as_index(id)]);
        note(of_change[as_index(id)]);
      }
    }
  }

  // Of those before one instruction first what is needed first; what one follows is needed no
  // later.
  void put_in_order() {
    std::stable_sort(leftovers_.begin(), leftovers_.end(), [&](int a, int b) {
      return std::pair(place_[as_index(a)], deadline_[as_index(a)]) <
             std::pair(place_[as_index(b)], deadline_[as_index(b)]);
    });
    for (const int id : freed_) {
      const auto last = std::find_if(leftovers_.rbegin(), leftovers_.rend(), [&](int number) {
        return at(number).operation == Operation::Wait && contains(touched_by(at(number)).read, id);
      });
      if (last != leftovers_.rend()) at(*last).frees.push_back(id);
    }
    std::vector<int> order;
    auto left = leftovers_.begin();
    for (int i = 0; i < count(); ++i) {
      for (; left != leftovers_.end() && place_[as_index(*left)] <= i; ++left)
        order.push_back(*left);
      if (!is_left(i)) order.push_back(i);
    }
    order.insert(order.end(), left, leftovers_.end());
    std::vector<int> place_of(order.size());
    for (std::size_t i = 0; i < order.size(); ++i)
      place_of[as_index(order[i])] = static_cast<int>(i);
    std::vector<Instruction> instructions;
    for (const int number : order) {
      Instruction one = std::move(at(number));
      for (int& earlier : one.after) earlier = place_of[as_index(earlier)];
      if (one.completes >= 0) one.completes = place_of[as_index(one.completes)];
      std::sort(one.after.begin(), one.after.end());
      instructions.push_back(std::move(one));
    }
    program_.instructions = std::move(instructions);
  }

  Program program_;
  std::vector<bool> left_;      // by instruction: it is left to the next step
  std::vector<int> leftovers_;  // those, in their order
  std::vector<int> freed_;      // buffers that they use, and that others freed
  std::vector<int> deadline_;   // by instruction that is left: before which of the next step it is
  std::vector<int> place_;      // likewise: before which it stands
};

}  // namespace

std::optional<Program> with_rotated_updates(const Program& program) {
  return Rotation(program).rotated();
}

}  // namespace garonne::plan
