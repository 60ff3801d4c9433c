#include "plan/program/program_interpreter.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "base/lane.hpp"
#include "plan/program/content_hash.hpp"
#include "plan/program/interpreted_rank.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

// An instruction of another lane, from its issue on.
struct Action {
  int rank = -1;
  int number = -1;
  const Instruction* instruction = nullptr;
  std::size_t meeting = 0;
  std::size_t place = 0;  // among those that meet; of a message the sender is 0
  int count = 0;          // among the messages of its ends and tag
  std::vector<std::size_t> follows;
  // Where the data, what comes of it and the staging are: addresses, which keep nothing alive.
  std::weak_ptr<Contents> source;
  std::weak_ptr<Contents> target;
  std::weak_ptr<Contents> staging;
  std::shared_ptr<IssuedUpdate> update;  // in place of them
  std::weak_ptr<Contents> shard;         // that goes into the source first
  bool has_shard = false;
  bool read = false;
  bool done = false;
};

struct Meeting {
  std::vector<int> actions;  // by place; -1 = has not been issued
  std::vector<Contents> brought;
};

class Interpreter {
 public:
  Interpreter(const std::vector<RankProgram>& ranks, LaneTiming timing, unsigned seed)
      : timing_(timing),
        random_(seed),
        eagerness_(seed % 3 == 0   ? 1
                   : seed % 3 == 1 ? 6
                                   : 40) {
    for (const RankProgram& one : ranks) ranks_.emplace_back(*one.graph, *one.program);
    action_of_.resize(ranks.size());
    collectives_.resize(ranks.size());
    last_of_lane_.resize(ranks.size());
  }

  Outcome run() {
    for (bool moved = true; moved;) {
      moved = timing_ == LaneTiming::Random ? move_anything() : move_ranks();
      if (!moved && timing_ == LaneTiming::Late) moved = serve();
    }
    for (const InterpretedRank& rank : ranks_) {
      if (!rank.done()) throw Impossible(rank.where() + " waits for ever");
    }
    for (const Action& action : actions_) {
      if (!action.done || !action_of_[as_index(action.rank)].empty())
        throw Impossible(describe(*action.instruction) + " is under way when the step is over");
    }
    Outcome outcome;
    for (const InterpretedRank& rank : ranks_) outcome.contents.push_back(rank.result());
    for (const auto& [ends, contents] : sent_) outcome.contents.push_back(contents);
    for (const Hash hash : outcome.contents)
      outcome.poisoned = outcome.poisoned || (hash & poison) != 0;
    return outcome;
  }

 private:
  bool move_ranks() {
    bool moved = false;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      while (step(rank)) {
        moved = true;
        if (timing_ != LaneTiming::Early) continue;
        while (act_on_any()) {
        }
      }
    }
    return moved;
  }

  bool act_on_any() {
    for (std::size_t a = first_open_; a < actions_.size(); ++a) {
      if (can_act(a)) return act(a), true;
    }
    while (first_open_ < actions_.size() && actions_[first_open_].done) ++first_open_;
    return false;
  }

  // A step of a rank, or half an action, by lot.
  bool move_anything() {
    std::vector<std::size_t> open;
    for (std::size_t a = 0; a < actions_.size(); ++a) {
      if (!actions_[a].done && can_act(a)) open.push_back(a);
    }
    const std::size_t first = random_() % ranks_.size();
    if (open.empty() || random_() % 40 >= static_cast<unsigned>(eagerness_)) {
      for (std::size_t k = 0; k < ranks_.size(); ++k) {
        if (step((first + k) % ranks_.size())) return true;
      }
    }
    if (open.empty()) return false;
    act(open[random_() % open.size()]);
    return true;
  }

  // Nobody can go on: half an action that somebody waits for.
  bool serve() {
    for (std::size_t k = 0; k < ranks_.size(); ++k) {
      const std::size_t rank = (first_served_ + k) % ranks_.size();
      if (ranks_[rank].done()) continue;
      const Instruction& held = ranks_[rank].instruction();
      const bool blocks = held.operation != Operation::Wait;
      if (serve(action_of_[rank].at(blocks ? ranks_[rank].next() : held.completes))) return true;
    }
    return false;
  }

  bool serve(std::size_t a) {
    for (const std::size_t before : actions_[a].follows) {
      if (!actions_[before].done) return serve(before);
    }
    if (can_act(a)) return act(a), true;
    for (const int partner : meetings_[actions_[a].meeting].actions) {
      if (partner < 0 || actions_[as_index(partner)].read) continue;
      for (const std::size_t before : actions_[as_index(partner)].follows) {
        if (!actions_[before].done) return serve(before);
      }
      if (can_act(as_index(partner))) return act(as_index(partner)), true;
    }
    return false;
  }

  bool step(std::size_t number) {
    InterpretedRank& rank = ranks_[number];
    if (rank.done()) return false;
    const Instruction& instruction = rank.instruction();
    if (instruction.operation == Operation::Wait) {
      const auto found = action_of_[number].find(instruction.completes);
      if (found == action_of_[number].end())
        throw Impossible(rank.where() + " waits for nothing that is under way");
      if (!actions_[found->second].done) return false;
      action_of_[number].erase(found);
    } else if (instruction.channel && instruction.lane == Lane::Compute) {
      // Issued once, then waited for.
      const auto found = action_of_[number].find(rank.next());
      if (found == action_of_[number].end()) {
        issue(number);
        return true;
      }
      if (!actions_[found->second].done) return false;
      action_of_[number].erase(found);
    } else if (instruction.channel || is_copy(instruction.operation) ||
               instruction.operation == Operation::UpdateHost) {
      issue(number);
    } else {
      rank.compute();
    }
    rank.advance();
    return true;
  }

  void issue(std::size_t number) {
    InterpretedRank& rank = ranks_[number];
    const Instruction& instruction = rank.instruction();
    Action action;
    action.rank = static_cast<int>(number);
    action.number = rank.next();
    action.instruction = &instruction;
    for (const int earlier : instruction.after) {
      const auto found = all_.find({number, earlier});
      if (found == all_.end()) throw Impossible(rank.where() + " follows what is not there");
      action.follows.push_back(found->second);
    }
    if (kind_of(instruction.lane).ends_in_order) {
      auto& lanes = last_of_lane_[number];
      const auto last = lanes.find(instruction.lane);
      if (last != lanes.end()) action.follows.push_back(last->second);
      lanes[instruction.lane] = actions_.size();
    }
    const bool sends = instruction.operation == Operation::Send;
    if (!instruction.channel) {
      // It meets nobody.
      action.meeting = meeting_of("copy", {static_cast<int>(number), action.number}, 0, 1);
    } else if (sends || instruction.operation == Operation::Receive) {
      const Channel& channel = *instruction.channel;
      const int me = static_cast<int>(number);
      const int peer = channel.members.at(as_index(channel.peer));
      const auto ends = std::make_tuple(sends ? me : peer, sends ? peer : me, channel.tag);
      auto& count = messages_[{ends, sends}];
      action.meeting =
          meeting_of("message", {std::get<0>(ends), std::get<1>(ends), channel.tag}, count++, 2);
      action.place = sends ? 0 : 1;
      action.count = count - 1;
    } else {
      const Channel& channel = *instruction.channel;
      std::vector<int> key = channel.members;
      key.push_back(static_cast<int>(channel.group));
      const auto found =
          std::find(channel.members.begin(), channel.members.end(), static_cast<int>(number));
      action.meeting =
          meeting_of("collective", key, collectives_[number][key]++, channel.members.size());
      action.place = static_cast<std::size_t>(found - channel.members.begin());
    }
    // The buffers that it makes are there from its issue on.
    const IssuedBuffers buffers = rank.issue();
    action.update = buffers.update;
    action.source = buffers.source;
    action.target = buffers.target;
    action.staging = buffers.staging;
    action.shard = buffers.shard;
    action.has_shard = buffers.shard != nullptr;
    meetings_[action.meeting].actions.at(action.place) = static_cast<int>(actions_.size());
    action_of_[number][action.number] = actions_.size();
    all_[{number, action.number}] = actions_.size();
    actions_.push_back(std::move(action));
  }

  std::size_t meeting_of(const std::string& what, const std::vector<int>& who, int number,
                         std::size_t members) {
    const auto [found, fresh] = meeting_by_.try_emplace({what, who, number}, meetings_.size());
    if (fresh) meetings_.push_back({std::vector<int>(members, -1), std::vector<Contents>(members)});
    return found->second;
  }

  bool all_issued(const Meeting& meeting) const {
    return std::count(meeting.actions.begin(), meeting.actions.end(), -1) == 0;
  }

  // Reading and writing are apart: what is read now may arrive later.
  bool can_act(std::size_t a) const {
    const Action& action = actions_[a];
    if (action.done) return false;
    const bool free = std::all_of(action.follows.begin(), action.follows.end(),
                                  [&](std::size_t before) { return actions_[before].done; });
    if (!free) return false;
    const Meeting& meeting = meetings_[action.meeting];
    if (!action.read) {
      // Early, a message leaves before anybody asks for it.
      return timing_ != LaneTiming::Late || action.instruction->operation != Operation::Send ||
             all_issued(meeting);
    }
    return std::all_of(meeting.actions.begin(), meeting.actions.end(),
                       [&](int other) { return other >= 0 && actions_[as_index(other)].read; });
  }

  void act(std::size_t a) {
    Action& action = actions_[a];
    const Instruction& instruction = *action.instruction;
    Meeting& meeting = meetings_[action.meeting];
    Contents& brought = meeting.brought[action.place];
    const auto there = [&](const std::weak_ptr<Contents>& place) {
      Storage storage = place.lock();
      if (!storage) throw Impossible(describe(instruction) + " uses what was given back");
      return storage;
    };
    const bool stages = instruction.arguments.staging >= 0 &&
                        ranks_[as_index(action.rank)].bytes(instruction.arguments.staging) > 0;
    const Hash mark = mix(Hash{5}, static_cast<int>(a));
    if (action.update) {
      action.done = action.read;
      action.read ? action.update->write() : action.update->read();
      action.read = true;
      return;
    }
    if (!action.read) {
      action.read = true;
      if (instruction.operation == Operation::Receive) return;
      const Storage source = there(action.source);
      if (action.has_shard) put(*there(action.shard), instruction, *source);
      brought = *source;
      if (instruction.operation == Operation::Send) {
        action.done = true;
        const int peer = instruction.channel->members.at(as_index(instruction.channel->peer));
        sent_[{action.rank, peer, instruction.channel->tag, action.count}] = digest(brought);
      }
      if (stages) there(action.staging)->assign(1, mark);
      return;
    }
    action.done = true;
    if (stages && *there(action.staging) != Contents{mark})
      throw Impossible(describe(instruction) + " has another's numbers in its staging");
    arrive(instruction, action.place, meeting, *there(action.target));
  }

  static void put(const Contents& shard, const Instruction& gather, Contents& whole) {
    const Range& part = gather.arguments.part;
    const bool fits = part.offset >= 0 &&
                      part.elements == static_cast<std::int64_t>(shard.size()) &&
                      part.offset <= static_cast<std::int64_t>(whole.size()) - part.elements;
    if (!fits) throw Impossible(describe(gather) + " puts its shard where there is no room");
    std::copy(shard.begin(), shard.end(), whole.begin() + part.offset);
  }

  void arrive(const Instruction& instruction, std::size_t place, const Meeting& meeting,
              Contents& target) const {
    const auto& brought = meeting.brought;
    if (!instruction.channel) {
      target = brought[0];
      return;
    }
    for (const int other : meeting.actions) {
      const Instruction& one = *actions_[as_index(other)].instruction;
      const bool message = is_message(one.operation);
      if (!message && one.operation != instruction.operation)
        throw Impossible(describe(instruction) + " meets " + describe(one));
      if (one.channel->bytes != instruction.channel->bytes)
        throw Impossible(describe(instruction) + " meets one of other bytes");
    }
    if (is_part_of_message(instruction)) return put_part(instruction, digest(brought[0]), target);
    if (instruction.operation == Operation::Receive) {
      target = brought[0];
      return;
    }
    if (instruction.arguments.exchanged >= 0) return exchange(instruction, place, brought, target);
    const std::size_t members = brought.size();
    for (const Contents& one : brought) {
      if (one.size() != brought[place].size())
        throw Impossible(describe(instruction) + " meets one of other elements");
    }
    const std::size_t size = brought[place].size();
    // A mutant may bring less than an element for each.
    const std::size_t share = std::max<std::size_t>(size / members, 1);
    for (std::size_t e = 0; e < target.size() && e < size; ++e) {
      if (instruction.operation == Operation::AllGather) {
        target[e] = brought[std::min(e / share, members - 1)][e];
        continue;
      }
      const bool mine = instruction.operation == Operation::AllReduce || e / share == place;
      if (!mine) continue;
      Hash sum = nought;
      for (const Contents& one : brought) sum = add(sum, one[e]);
      target[e] = sum;
    }
    if (gathers_message(instruction)) make_one(target);
  }

  // Of what all who send it have: the same in each element of the part.
  static void put_part(const Instruction& message, Hash whole, Contents& target) {
    const Range& part = message.arguments.part;
    const auto size = static_cast<std::int64_t>(target.size());
    if (part.offset < 0 || part.elements < 0 || part.offset > size - part.elements)
      throw Impossible(describe(message) + " puts its part where there is no room");
    std::fill_n(target.begin() + part.offset, part.elements, whole);
  }

  // What is the same in all parts is taken whole from now on, as if it had come so.
  static void make_one(Contents& target) {
    const bool same = std::all_of(target.begin(), target.end(),
                                  [&](Hash element) { return element == target.front(); });
    if (same && !target.empty()) target.resize(1);
  }

  // What passes of nodes exchange is taken whole.
  static void exchange(const Instruction& instruction, std::size_t place,
                       const std::vector<Contents>& brought, Contents& target) {
    Hash all = nought;
    for (const Contents& one : brought) {
      all = instruction.operation == Operation::AllGather ? mix(all, digest(one))
                                                          : add(all, digest(one));
    }
    const bool piece = instruction.operation == Operation::ReduceScatter;
    fill(target, piece ? mix(all, static_cast<int>(place)) : all);
  }

  LaneTiming timing_;
  std::size_t first_served_;  // by rank
  std::mt19937 random_;
  int eagerness_;  // of 40
  std::vector<InterpretedRank> ranks_;
  std::deque<Action> actions_;
  std::size_t first_open_ = 0;
  std::vector<Meeting> meetings_;
  std::map<std::tuple<std::string, std::vector<int>, int>, std::size_t> meeting_by_;
  std::vector<std::map<int, std::size_t>> action_of_;       // by rank: instruction, until its Wait
  std::map<std::pair<std::size_t, int>, std::size_t> all_;  // by rank and instruction
  std::vector<std::map<std::vector<int>, int>> collectives_;
  std::map<std::pair<std::tuple<int, int, int>, bool>, int> messages_;
  std::vector<std::map<Lane, std::size_t>> last_of_lane_;
  std::map<std::tuple<int, int, int, int>, Hash> sent_;
};

}  // namespace

Outcome interpret(const std::vector<RankProgram>& ranks, LaneTiming timing, unsigned seed) {
  try {
    return Interpreter(ranks, timing, seed).run();
  } catch (const Impossible& impossible) {
    return {impossible.what(), {}, false};
  } catch (const std::out_of_range& beyond) {
    return {beyond.what(), {}, false};
  }
}

}  // namespace garonne::plan::test
