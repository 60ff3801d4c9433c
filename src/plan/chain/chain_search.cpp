#include "plan/chain/chain_search.hpp"

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>

#include "base/error.hpp"
#include "base/index.hpp"

namespace garonne::plan {
namespace {

using Mask = std::uint32_t;

constexpr Mask bit(int index) {
  return Mask{1} << index;
}

// What is live inside a window, all indices from its low end.
struct State {
  Mask values = 0;
  int gradient = 0;
  std::array<std::int16_t, most_window_blocks> kept{};
  bool operator==(const State&) const = default;
};

struct StateHash {
  std::size_t operator()(const State& state) const {
    std::uint64_t hash =
        state.values * 0x9e3779b97f4a7c15ULL + static_cast<unsigned>(state.gradient);
    for (const std::int16_t option : state.kept) {
      hash ^= static_cast<std::uint16_t>(option);
      hash *= 0xff51afd7ed558ccdULL;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

class ChainSearch {
 public:
  ChainSearch(const Chain& chain, const ChainWindow& window)
      : chain_(chain), window_(window), blocks_(window.high - window.low) {
    expect(blocks_ > 0 && blocks_ <= most_window_blocks, "a window has some blocks");
    for (int q = 0; q < blocks_; ++q) {
      double least = std::numeric_limits<double>::infinity();
      for (const auto& option : block(q).options)
        least = std::min(least, option.forward.seconds + option.backward.seconds);
      least_.push_back(least);
    }
    for (int q = 0; q < window.stop - window.low; ++q) {
      if (window.needed_values[as_index(q)]) needed_values_ |= bit(q);
    }
  }

  ChainWindowAnswer run() {
    State start;
    start.kept.fill(-1);
    start.gradient = blocks_;
    for (int q = 0; q < blocks_; ++q) {
      if (window_.values[as_index(q)]) start.values |= bit(q);
      start.kept[as_index(q)] = static_cast<std::int16_t>(window_.kept[as_index(q)]);
    }
    if (live_bytes(start) <= window_.budget_bytes) reach(start, 0, -1, 0, {});
    ChainWindowAnswer answer;
    answer.lower_bound_seconds = window_.upper_seconds;
    while (!open_.empty()) {
      const Entry entry = open_.top();
      open_.pop();
      if (nodes_[entry.node].seconds < entry.seconds) continue;
      if (is_goal(nodes_[entry.node].state)) {
        answer.operations = path(entry.node);
        answer.seconds = nodes_[entry.node].seconds;
        answer.lower_bound_seconds = answer.seconds;
        answer.complete = true;
        break;
      }
      answer.states = static_cast<std::int64_t>(nodes_.size());
      if (answer.states >= window_.most_states) {
        answer.lower_bound_seconds = entry.estimate;
        return answer;
      }
      expand(entry.node);
    }
    answer.states = static_cast<std::int64_t>(nodes_.size());
    answer.complete = true;
    return answer;
  }

 private:
  struct Node {
    State state;
    double seconds;
    std::int64_t parent;
    Mask dropped;  // before the operation
    ChainOperation operation;
  };
  struct Entry {
    double estimate;
    double seconds;
    std::size_t node;
    // Of equal estimates the one that is further, then the older one.
    bool operator<(const Entry& other) const {
      if (estimate != other.estimate) return estimate > other.estimate;
      if (seconds != other.seconds) return seconds < other.seconds;
      return node > other.node;
    }
  };

  const ChainBlock& block(int q) const { return chain_.blocks[as_index(window_.low + q)]; }
  const ChainOption& option(int q, int k) const { return block(q).options[as_index(k)]; }
  std::int64_t value_bytes(int q) const {
    const int value = window_.low + q;
    return value == 0 ? chain_.input_bytes : chain_.blocks[as_index(value - 1)].output_bytes;
  }
  int stop() const { return window_.stop - window_.low; }

  bool available(const State& state, int q) const {
    if ((state.values & bit(q)) != 0) return true;
    return q == 0 ? window_.low_is_outside : state.kept[as_index(q - 1)] >= 0;
  }
  std::int64_t live_bytes(const State& state) const {
    std::int64_t live = value_bytes(state.gradient);
    for (int q = 0; q < blocks_; ++q) {
      if ((state.values & bit(q)) != 0) live += value_bytes(q);
      if (state.kept[as_index(q)] >= 0) live += option(q, state.kept[as_index(q)]).saved_bytes;
    }
    for (int q = state.gradient; q < blocks_; ++q) live += block(q).gradient_bytes;
    return live;
  }
  bool is_goal(const State& state) const {
    if (state.gradient != stop()) return false;
    for (int q = 0; q < stop(); ++q) {
      if (state.kept[as_index(q)] != window_.needed_kept[as_index(q)]) return false;
    }
    return (needed_values_ & ~state.values) == 0;
  }

  // What is left to do at least.
  double remaining(const State& state) const {
    double seconds = 0;
    for (int q = 0; q < state.gradient; ++q) {
      const int kept = state.kept[as_index(q)];
      if (q < stop()) {
        const int needed = window_.needed_kept[as_index(q)];
        if (kept < 0 && needed >= 0) seconds += option(q, needed).forward.seconds;
      } else {
        seconds += kept >= 0 ? option(q, kept).backward.seconds : least_[as_index(q)];
      }
    }
    return seconds;
  }

  void reach(const State& state, double seconds, std::int64_t parent, Mask dropped,
             const ChainOperation& operation) {
    const double estimate = seconds + remaining(state);
    if (estimate >= window_.upper_seconds) return;
    const auto [known, fresh] = index_.emplace(state, nodes_.size());
    if (!fresh) {
      Node& node = nodes_[known->second];
      if (node.seconds <= seconds) return;
      node = {state, seconds, parent, dropped, operation};
    } else {
      nodes_.push_back({state, seconds, parent, dropped, operation});
    }
    open_.push({estimate, seconds, known->second});
  }

  // Runs an operation after dropping as little as makes it fit. A value is worth its bytes until
  // they are needed, so nothing is ever dropped before.
  template <typename After>
  void attempt(std::size_t from, State state, Mask already, std::int64_t live, std::int64_t more,
               Mask spared, double seconds, const ChainOperation& operation, const After& after) {
    const std::int64_t lacking = live + more - window_.budget_bytes;
    std::vector<int> droppable;
    for (int q = 0; q < blocks_; ++q) {
      if ((state.values & ~spared & bit(q)) != 0 && value_bytes(q) > 0) droppable.push_back(q);
    }
    std::vector<std::int64_t> rest(droppable.size() + 1, 0);
    for (std::size_t n = droppable.size(); n-- > 0;)
      rest[n] = rest[n + 1] + value_bytes(droppable[n]);
    const auto choose = [&](const auto& self, std::size_t n, Mask drops, std::int64_t freed,
                            std::int64_t smallest) -> void {
      if (freed >= lacking) {
        if (drops != 0 && freed - smallest >= lacking) return;
        State next = state;
        next.values &= ~drops;
        after(next);
        reach(next, seconds, static_cast<std::int64_t>(from), already | drops, operation);
        return;
      }
      if (freed + rest[n] < lacking) return;
      const std::int64_t bytes = value_bytes(droppable[n]);
      self(self, n + 1, drops | bit(droppable[n]), freed + bytes, std::min(smallest, bytes));
      self(self, n + 1, drops, freed, smallest);
    };
    choose(choose, 0, 0, 0, std::numeric_limits<std::int64_t>::max());
  }

  void expand(std::size_t from) {
    const State state = nodes_[from].state;
    const double seconds = nodes_[from].seconds;
    const std::int64_t live = live_bytes(state);
    const int top = state.gradient - 1;
    if (top >= stop() && state.kept[as_index(top)] >= 0 && available(state, top)) {
      const ChainOption& kept = option(top, state.kept[as_index(top)]);
      attempt(from, state, 0, live,
              value_bytes(top) + block(top).gradient_bytes + kept.backward.transient_bytes,
              bit(top), seconds + kept.backward.seconds,
              {ChainOperationKind::Backward, window_.low + top}, [&](State& next) {
                next.gradient = top;
                next.kept[as_index(top)] = -1;
                next.values &= ~bit(top);
              });
    }
    for (int q = 0; q <= top; ++q) {
      if (!available(state, q)) continue;
      if (q < top && !available(state, q + 1)) {
        attempt(from, state, 0, live, value_bytes(q + 1) + block(q).forward.transient_bytes, bit(q),
                seconds + block(q).forward.seconds,
                {ChainOperationKind::ForwardCheckpoint, window_.low + q},
                [&](State& next) { next.values |= bit(q + 1); });
      }
      if (state.kept[as_index(q)] >= 0) continue;
      for (int k = 0; k < static_cast<int>(block(q).options.size()); ++k) {
        if (q < stop() && window_.needed_kept[as_index(q)] != k) continue;
        const ChainOption& kept = option(q, k);
        // The output is inside the saved bytes and must not be live twice.
        State before = state;
        Mask already = 0;
        std::int64_t less = 0;
        if (q < top && (state.values & bit(q + 1)) != 0) {
          already = bit(q + 1);
          before.values &= ~already;
          less = value_bytes(q + 1);
        }
        attempt(from, before, already, live - less, kept.saved_bytes + kept.forward.transient_bytes,
                bit(q), seconds + kept.forward.seconds,
                {ChainOperationKind::ForwardKeep, window_.low + q, k},
                [&](State& next) { next.kept[as_index(q)] = static_cast<std::int16_t>(k); });
      }
    }
  }

  std::vector<ChainOperation> path(std::size_t goal) const {
    std::vector<ChainOperation> backwards;
    for (int q = stop() - 1; q >= 0; --q) {
      if ((nodes_[goal].state.values & ~needed_values_ & bit(q)) != 0)
        backwards.push_back({ChainOperationKind::Drop, window_.low + q});
    }
    for (std::size_t n = goal; nodes_[n].parent >= 0;
         n = static_cast<std::size_t>(nodes_[n].parent)) {
      backwards.push_back(nodes_[n].operation);
      for (int q = blocks_ - 1; q >= 0; --q) {
        if ((nodes_[n].dropped & bit(q)) != 0)
          backwards.push_back({ChainOperationKind::Drop, window_.low + q});
      }
    }
    return {backwards.rbegin(), backwards.rend()};
  }

  const Chain& chain_;
  const ChainWindow& window_;
  int blocks_;
  std::vector<double> least_;
  Mask needed_values_ = 0;
  std::vector<Node> nodes_;
  std::unordered_map<State, std::size_t, StateHash> index_;
  std::priority_queue<Entry> open_;
};

}  // namespace

ChainWindowAnswer search_window(const Chain& chain, const ChainWindow& window) {
  return ChainSearch(chain, window).run();
}

ChainWindow whole_chain(const Chain& chain, std::int64_t budget_bytes) {
  ChainWindow window;
  window.high = static_cast<int>(chain.blocks.size());
  window.budget_bytes = budget_bytes - chain.input_bytes;
  window.values.assign(chain.blocks.size(), false);
  window.kept.assign(chain.blocks.size(), -1);
  return window;
}

std::vector<ChainOperation> join_drops(const std::vector<ChainOperation>& operations) {
  std::vector<ChainOperation> joined;
  for (const auto& operation : operations) {
    if (operation.kind == ChainOperationKind::Drop && !joined.empty() &&
        joined.back().kind == ChainOperationKind::ForwardCheckpoint &&
        joined.back().block == operation.block) {
      joined.back().kind = ChainOperationKind::ForwardDiscard;
    } else {
      joined.push_back(operation);
    }
  }
  return joined;
}

}  // namespace garonne::plan
