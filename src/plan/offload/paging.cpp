#include "plan/offload/paging.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "base/contains.hpp"
#include "base/index.hpp"
#include "plan/offload/buffer_uses.hpp"
#include "plan/offload/lower_buffers.hpp"
#include "plan/program/program_edit.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/spans.hpp"

namespace garonne::plan {
namespace {

// The uses of buffers that are left to the device where the host takes updates of them.
Program without_uses_of(Program program, const std::vector<int>& buffers,
                        const std::vector<StateGroup>& groups) {
  for (const StateGroup& group : groups) {
    for (const int place : {group.first, group.update}) {
      Instruction& instruction = program.instructions[as_index(place)];
      for (auto* const ids : {&instruction.reads, &instruction.writes, &instruction.frees})
        std::erase_if(*ids, [&](int id) { return contains(buffers, id); });
    }
  }
  return program;
}

class Pager {
 public:
  Pager(Program& program, const std::vector<int>& buffers, Tier tier, const TierLinks& links,
        std::int64_t budget_bytes, const std::vector<StateGroup>& groups,
        const std::vector<std::int64_t>& more_bytes = {})
      : program_(program),
        tier_(tier),
        links_(links),
        budget_bytes_(budget_bytes),
        spans_(spans_of(program)),
        fixed_(replay(program).during_bytes),
        places_(static_cast<int>(program.instructions.size())) {
    const std::vector<std::vector<Use>> all = uses_of(program, buffers);
    std::vector<std::vector<Use>> uses =
        groups.empty() ? all : uses_of(without_uses_of(program, buffers, groups), buffers);
    items_.resize(buffers.size());
    for (std::size_t k = 0; k < buffers.size(); ++k) {
      Item& item = items_[k];
      const Buffer& buffer = program.buffers[as_index(buffers[k])];
      item.uses = std::move(uses[k]);
      add_live_bytes(buffer, all[k], -1, fixed_);
      item.buffer = buffers[k];
      item.bytes = buffer.bytes;
      item.lasts = item.valid_below = buffer.live_at_start;
      item.out_seconds = message_seconds(buffer.bytes, links.out);
      item.in_seconds = message_seconds(buffer.bytes, links.in);
    }
    for (std::size_t place = 0; place < more_bytes.size(); ++place)
      fixed_[place] -= more_bytes[place];
    for (const StateGroup& group : groups) note_update(group);
    for (std::size_t k = 0; k < items_.size(); ++k) {
      Item& item = items_[k];
      if (item.lasts) item.below = put_below(program, item.buffer, tier);
      await_use(k);
      for (const Use& use : item.uses) {
        begins_[use.begin].push_back(k);
        ends_[use.end].push_back(k);
      }
    }
  }

  bool run() {
    for (int place = 0; place < places_; ++place) {
      hand_over_to_update(place);
      if (!make_room_for_uses(place)) return false;
      begin_uses(place);
      read_ahead(place);
      end_uses(place);
    }
    while (!leaving_.empty()) let_go(places_);
    write();
    return true;
  }

 private:
  enum class Where { Away, Coming, Here, Leaving };
  // From when a buffer comes, or is made, to when it goes.
  struct Stay {
    std::size_t item = 0;
    int read_before = -1;  // -1: it is made
    int wait_before = -1;
    int freed_at = -1;  // with what the instruction there frees, where the tier has its content
    bool cancelled = false;
  };
  struct Write {
    std::size_t item = 0;
    int behind = -1;
    int wait_before = -1;
    bool frees = false;
    double end = 0;  // moment
  };
  struct Item {
    int buffer = -1;
    int below = -1;
    std::int64_t bytes = 0;
    double out_seconds = 0;
    double in_seconds = 0;
    bool lasts = false;
    std::vector<Use> uses;
    std::size_t next = 0;  // use
    Where where = Where::Away;
    bool valid_below = false;  // the tier has what it holds
    bool in_use = false;
    std::size_t stay = 0;
    std::size_t write = 0;  // where it is leaving
    double there_at = 0;    // moment, where it is coming
    int updated_at = -1;    // by the host; -1 = by nobody
  };

  void note_update(const StateGroup& group) {
    const Instruction& update = program_.instructions[as_index(group.update)];
    for (std::size_t k = 0; k < items_.size(); ++k) {
      if (!contains(update.reads, items_[k].buffer)) continue;
      items_[k].updated_at = group.update;
      updates_[group.update].push_back(k);
    }
  }

  // What the device has of a parameter is of the step before from here on, and the host has the
  // gradient.
  void hand_over_to_update(int place) {
    const auto found = updates_.find(place);
    if (found == updates_.end()) return;
    for (const std::size_t k : found->second) {
      if (items_[k].lasts && items_[k].where == Where::Here) leave(k);
      while (!items_[k].lasts && items_[k].where == Where::Leaving) let_go(place);
    }
  }

  // Between its update and its next use; before it the host has another one.
  bool may_come(const Item& item, int place) const {
    return !item.lasts || item.updated_at < 0 || next_begin(item) < item.updated_at ||
           place > item.updated_at;
  }

  double now(int place) const { return spans_[as_index(place)].begin + lost_; }

  bool has_next(const Item& item) const { return item.next < item.uses.size(); }
  int next_begin(const Item& item) const { return item.uses[item.next].begin; }

  // In the order in which they are wanted.
  void await_use(std::size_t k) {
    const Item& item = items_[k];
    if (has_next(item) && !item.uses[item.next].makes) missing_.insert({next_begin(item), k});
  }

  bool has_room(int place, std::int64_t bytes) const {
    return fixed_[as_index(place)] + here_bytes_ + bytes <= budget_bytes_;
  }

  bool make_room_for_uses(int place) {
    std::int64_t wanted = 0;
    const auto found = begins_.find(place);
    if (found != begins_.end()) {
      for (const std::size_t k : found->second)
        wanted += items_[k].where == Where::Away ? items_[k].bytes : 0;
    }
    while (!has_room(place, wanted)) {
      if (!evict(place)) return false;
    }
    return true;
  }

  void begin_uses(int place) {
    const auto found = begins_.find(place);
    if (found == begins_.end()) return;
    for (const std::size_t k : found->second) {
      Item& item = items_[k];
      const Use& use = item.uses[item.next];
      if (item.where == Where::Away && use.makes) {
        item.stay = stays_.size();
        stays_.push_back({k, -1, -1, -1, false});
        here_bytes_ += item.bytes;
      } else if (item.where == Where::Away) {
        bring(k, place);
      }
      if (item.where == Where::Leaving) stay_after_all(k, place);
    }
    for (const std::size_t k : found->second) {
      Item& item = items_[k];
      if (item.where == Where::Coming) {
        stays_[item.stay].wait_before = place;
        lost_ += std::max(0.0, item.there_at - now(place));
      }
      item.where = Where::Here;
      item.in_use = true;
      if (item.uses[item.next].changed_at >= 0) item.valid_below = false;
    }
  }

  void end_uses(int place) {
    const auto found = ends_.find(place);
    if (found == ends_.end()) return;
    for (const std::size_t k : found->second) {
      Item& item = items_[k];
      const Use& use = item.uses[item.next];
      item.in_use = false;
      ++item.next;
      if (use.frees) {
        go(k);
      } else if (!has_next(item)) {
        leave(k);
      }
    }
  }

  void bring(std::size_t k, int place) {
    Item& item = items_[k];
    missing_.erase({next_begin(item), k});
    item.stay = stays_.size();
    stays_.push_back({k, place, -1, -1, false});
    item.where = Where::Coming;
    in_free_at_ = std::max(in_free_at_, now(place)) + item.in_seconds;
    item.there_at = in_free_at_;
    here_bytes_ += item.bytes;
  }

  // It is on the device no more.
  void go(std::size_t k) {
    Item& item = items_[k];
    item.where = Where::Away;
    here_bytes_ -= item.bytes;
    await_use(k);
  }

  // Behind its last use so far.
  void leave(std::size_t k) {
    Item& item = items_[k];
    const Use& last = item.uses[item.next - 1];
    if (item.valid_below) {
      stays_[item.stay].freed_at = last.end;
      return go(k);
    }
    const int behind = changed_at(item);
    const double ready = spans_[as_index(behind)].end + lost_;
    out_free_at_ = std::max(out_free_at_, ready) + item.out_seconds;
    item.write = writes_.size();
    writes_.push_back({k, behind, -1, true, out_free_at_});
    item.where = Where::Leaving;
    leaving_.push_back(k);
  }

  int changed_at(const Item& item) const {
    for (std::size_t use = item.next; use-- > 0;) {
      if (item.uses[use].changed_at >= 0) return item.uses[use].changed_at;
    }
    return item.uses[item.next - 1].end;
  }

  // The oldest of those that are leaving has gone before `place`.
  void let_go(int place) {
    const std::size_t k = leaving_.front();
    leaving_.pop_front();
    Item& item = items_[k];
    Write& write = writes_[item.write];
    write.wait_before = place;
    if (place < places_) lost_ += std::max(0.0, write.end - now(place));
    item.valid_below = true;
    go(k);
  }

  // It is wanted again before its room is.
  void stay_after_all(std::size_t k, int place) {
    Item& item = items_[k];
    Write& write = writes_[item.write];
    write.wait_before = place;
    write.frees = false;
    lost_ += std::max(0.0, write.end - now(place));
    item.valid_below = true;
    leaving_.erase(std::find(leaving_.begin(), leaving_.end(), k));
  }

  // Among those that are idle at a place: of the longest way to its next use for what its way out
  // and back takes. None where all are in use.
  std::optional<std::size_t> victim(int place) const {
    std::optional<std::size_t> best;
    double best_score = 0;
    for (std::size_t k = 0; k < items_.size(); ++k) {
      const Item& item = items_[k];
      if (item.where != Where::Here || item.in_use || next_begin(item) == place) continue;
      const double away = spans_[as_index(next_begin(item))].begin - spans_[as_index(place)].begin;
      const double price = item.in_seconds + (item.valid_below ? 0 : item.out_seconds);
      constexpr double least_seconds = 1e-9;
      const double score = (away + least_seconds) / (price + least_seconds);
      if (best && score <= best_score) continue;
      best = k;
      best_score = score;
    }
    return best;
  }

  bool oldest_has_gone(int place) const {
    return !leaving_.empty() && writes_[items_[leaving_.front()].write].end <= now(place);
  }

  bool evict(int place) {
    if (oldest_has_gone(place)) return let_go(place), true;
    const std::optional<std::size_t> found = victim(place);
    if (!leaving_.empty()) {
      const double rest = writes_[items_[leaving_.front()].write].end - now(place);
      if (!found || !items_[*found].valid_below || rest <= items_[*found].in_seconds)
        return let_go(place), true;
    }
    if (found) return leave(*found), true;
    return send_back(place);
  }

  // What was read ahead, and is wanted last.
  bool send_back(int place) {
    std::optional<std::size_t> last;
    for (std::size_t k = 0; k < items_.size(); ++k) {
      const Item& item = items_[k];
      if (item.where != Where::Coming || next_begin(item) == place) continue;
      if (!last || next_begin(item) > next_begin(items_[*last])) last = k;
    }
    if (!last) return false;
    stays_[items_[*last].stay].cancelled = true;
    go(*last);
    return true;
  }

  void read_ahead(int place) {
    const double until = spans_[as_index(place)].end + lost_;
    while (in_free_at_ < until) {
      const auto next = std::find_if(missing_.begin(), missing_.end(), [&](const auto& one) {
        return may_come(items_[one.second], place);
      });
      if (next == missing_.end()) return;
      const auto [begin, k] = *next;
      while (!has_room(place, items_[k].bytes)) {
        if (oldest_has_gone(place)) {
          let_go(place);
          continue;
        }
        const std::optional<std::size_t> found = victim(place);
        if (!found || next_begin(items_[*found]) <= begin) return;
        const bool goes_at_once = items_[*found].valid_below;
        leave(*found);
        if (!goes_at_once && !oldest_has_gone(place)) return;
      }
      bring(k, place);
    }
  }

  // What does not last is below until it was used there for the last time: by the place of the
  // wait, where those for what goes out come first.
  void find_last_below() {
    last_below_.assign(items_.size(), {-1, false});
    for (const Write& write : writes_) {
      auto& last = last_below_[write.item];
      last = std::max(last, {write.wait_before, false});
    }
    for (const Stay& stay : stays_) {
      if (stay.read_before < 0) continue;
      auto& last = last_below_[stay.item];
      last = std::max(last, {stay.wait_before, true});
    }
  }

  Instruction wait(int copy, std::size_t k, int place, bool out) const {
    const Item& item = items_[k];
    Instruction instruction;
    instruction.operation = Operation::Wait;
    instruction.node = program_.buffers[as_index(item.buffer)].name;
    instruction.completes = copy;
    const bool is_last = item.updated_at < 0 && last_below_[k] == std::pair(place, !out);
    if (!item.lasts && is_last) instruction.frees = {item.below};
    return instruction;
  }

  // At one place what makes room comes first, then what takes it; waits for what is used are last.
  void write() {
    ProgramEdit edit(program_);
    std::stable_sort(writes_.begin(), writes_.end(),
                     [](const Write& a, const Write& b) { return a.behind < b.behind; });
    std::erase_if(stays_, [](const Stay& stay) { return stay.cancelled; });
    find_last_below();
    std::vector<bool> written(items_.size(), false);
    std::vector<int> numbers;
    for (const Write& write : writes_) {
      Item& item = items_[write.item];
      if (item.below < 0) item.below = add_below(program_, item.buffer, tier_);
      Instruction copy = copy_instruction(program_, item.buffer, item.below, links_.out);
      if (item.lasts || written[write.item]) copy.reads.push_back(item.below);
      written[write.item] = true;
      numbers.push_back(edit.insert_after(write.behind, std::move(copy)));
    }
    for (std::size_t k = 0; k < writes_.size(); ++k) {
      const Write& write = writes_[k];
      Instruction joins = wait(numbers[k], write.item, write.wait_before, true);
      if (write.frees) joins.frees.push_back(items_[write.item].buffer);
      edit.insert_before(write.wait_before, std::move(joins));
    }
    numbers.clear();
    for (const Stay& stay : stays_) {
      const Item& item = items_[stay.item];
      if (stay.freed_at >= 0)
        program_.instructions[as_index(stay.freed_at)].frees.push_back(item.buffer);
      numbers.push_back(
          stay.read_before < 0
              ? -1
              : edit.insert_before(stay.read_before,
                                   copy_instruction(program_, item.below, item.buffer, links_.in)));
    }
    for (std::size_t k = 0; k < stays_.size(); ++k) {
      const Stay& stay = stays_[k];
      if (numbers[k] < 0) continue;
      edit.insert_before(stay.wait_before, wait(numbers[k], stay.item, stay.wait_before, false));
    }
    edit.apply();
  }

  Program& program_;
  const Tier tier_;
  const TierLinks& links_;
  const std::int64_t budget_bytes_;
  const std::vector<Span> spans_;
  std::vector<std::int64_t> fixed_;  // by place: bytes of all others
  const int places_;
  std::vector<Item> items_;
  std::map<int, std::vector<std::size_t>> begins_;  // by place: items
  std::map<int, std::vector<std::size_t>> ends_;
  std::map<int, std::vector<std::size_t>> updates_;  // on the host
  std::set<std::pair<int, std::size_t>> missing_;    // place of the next use, item
  std::deque<std::size_t> leaving_;
  std::vector<Stay> stays_;
  std::vector<Write> writes_;
  std::vector<std::pair<int, bool>> last_below_;  // by item: place, whether it comes back
  std::int64_t here_bytes_ = 0;
  double in_free_at_ = 0;  // moments of a step that is held up by what was lost
  double out_free_at_ = 0;
  double lost_ = 0;
};

}  // namespace

std::vector<std::int64_t> idle_bytes(const Program& program, const std::vector<int>& buffers) {
  return idle_bytes_for_updates(program, buffers, {});
}

std::vector<std::int64_t> idle_bytes_for_updates(const Program& program,
                                                 const std::vector<int>& buffers,
                                                 const std::vector<StateGroup>& groups) {
  std::vector<std::int64_t> bytes(program.instructions.size(), 0);
  const std::vector<std::vector<Use>> all = uses_of(program, buffers);
  const std::vector<std::vector<Use>> uses =
      groups.empty() ? all : uses_of(without_uses_of(program, buffers, groups), buffers);
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    const Buffer& buffer = program.buffers[as_index(buffers[k])];
    add_live_bytes(buffer, all[k], 1, bytes);
    for (const Use& use : uses[k]) {
      for (int place = use.begin; place <= use.end; ++place) bytes[as_index(place)] -= buffer.bytes;
    }
  }
  return bytes;
}

std::optional<Program> with_paging(Program program, const std::vector<int>& buffers, Tier tier,
                                   const TierLinks& links, std::int64_t budget_bytes,
                                   const std::vector<std::int64_t>& more_bytes) {
  if (!Pager(program, buffers, tier, links, budget_bytes, {}, more_bytes).run())
    return std::nullopt;
  set_replayed(program);
  return program;
}

std::optional<Program> with_paging_for_updates(Program program, const std::vector<int>& buffers,
                                               const std::vector<StateGroup>& groups,
                                               const TierLinks& links, std::int64_t budget_bytes) {
  for (const StateGroup& group : groups) budget_bytes += group.bytes;
  if (!Pager(program, buffers, Tier::Host, links, budget_bytes, groups).run()) return std::nullopt;
  return program;
}

}  // namespace garonne::plan
