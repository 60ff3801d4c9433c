#include "plan/chain/copy_search.hpp"

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/chain/copy_state.hpp"

namespace garonne::plan {
namespace {

constexpr double unreachable = std::numeric_limits<double>::infinity();
constexpr int most_items = 3 * most_copied_blocks;
constexpr std::uint8_t has_left_once = 255;

// What comes of an operation in a state.
struct Outcome {
  CopyState state;
  double seconds = 0;
  std::int64_t peak_bytes = 0;
};

class CopyStates {
 public:
  CopyStates(const Chain& chain, const CopySearchOptions& options, bool copies_take_time)
      : chain_(chain),
        options_(options),
        copies_take_time_(copies_take_time),
        blocks_(static_cast<int>(chain.blocks.size())) {
    for (const ChainBlock& block : chain.blocks) {
      double both = unreachable;
      double backward = unreachable;
      for (const ChainOption& option : block.options) {
        both = std::min(both, option.forward.seconds + option.backward.seconds);
        backward = std::min(backward, option.backward.seconds);
      }
      least_.emplace_back(both, backward);
    }
  }

  // With each choice of the weights that are there.
  std::vector<CopyState> starts() const {
    std::vector<int> with_weights;
    for (int block = 0; block < blocks_ && chain_.links; ++block) {
      if (chain_.blocks[as_index(block)].weight_bytes > 0) with_weights.push_back(block);
    }
    std::vector<CopyState> all;
    for (std::uint32_t choice = 0; choice < 1U << with_weights.size(); ++choice) {
      CopyState state;
      state.gradient = blocks_;
      state.live = bit(ChainItem::Value, 0);
      for (int block = 0; block < blocks_; ++block) {
        state.live |= bit(ChainItem::Weights, block);
        if (chain_.links) state.below |= bit(ChainItem::Weights, block);
      }
      for (std::size_t k = 0; k < with_weights.size(); ++k) {
        if ((choice >> k & 1U) != 0) state.live &= ~bit(ChainItem::Weights, with_weights[k]);
      }
      state.start = weights(state.live);
      all.push_back(state);
    }
    return all;
  }

  bool is_end(const CopyState& state) const {
    return state.gradient == 0 && weights(state.live) == state.start && copies(state, 0) == 0 &&
           copies(state, 1) == 0;
  }

  double least_seconds(const CopyState& state) const {
    double seconds = 0;
    for (int block = 0; block < state.gradient; ++block) {
      const bool saved = ((state.live | state.below) & bit(ChainItem::Saved, block)) != 0;
      const auto [both, backward] = least_[as_index(block)];
      seconds += saved ? std::min(both, backward) : both;
    }
    return seconds;
  }

  std::int64_t live_bytes(const CopyState& state) const {
    std::int64_t bytes = chain_value_bytes(chain_, state.gradient);
    for (int block = 0; block < blocks_; ++block) {
      for (const ChainItem item : {ChainItem::Value, ChainItem::Saved, ChainItem::Weights}) {
        if ((state.live & bit(item, block)) != 0) bytes += this->bytes(state, item, block);
      }
      if (block >= state.gradient) bytes += chain_.blocks[as_index(block)].gradient_bytes;
    }
    return bytes;
  }

  // visit(operation, outcome)
  template <typename Visit>
  void expand(const CopyState& state, const Visit& visit) const {
    const auto offer = [&](const ChainOperation& operation) {
      visit(operation, outcome(state, operation));
    };
    const int top = state.gradient - 1;
    for (int block = 0; block <= top; ++block) {
      if (can_run(state, block)) expand_passes(state, block, offer);
    }
    for (int block = 0; block < blocks_; ++block) {
      for (const ChainItem item : {ChainItem::Value, ChainItem::Saved, ChainItem::Weights})
        expand_item(state, item, block, offer);
    }
    for (const bool out : {true, false}) {
      const CopyUnderWay& first = state.lanes[out ? 0 : 1][0];
      if (first.item >= 0) offer(wait_of(first, out));
    }
  }

  // The state behind an operation; the waits for copies that ended meanwhile go to `waits`.
  Outcome outcome(const CopyState& before, const ChainOperation& operation,
                  std::vector<ChainOperation>* waits = nullptr) const {
    Outcome result{before, 0, live_bytes(before)};
    CopyState& state = result.state;
    const int index = operation.block;
    const std::int64_t live = result.peak_bytes;
    const auto pass = [&](const PassCost& cost, std::int64_t makes) {
      result.seconds = cost.seconds;
      result.peak_bytes = live + makes + cost.transient_bytes;
    };
    switch (operation.kind) {
      case ChainOperationKind::ForwardDiscard:
      case ChainOperationKind::ForwardCheckpoint:
        pass(block(index).forward, block(index).output_bytes);
        state.live |= bit(ChainItem::Value, index + 1);
        break;
      case ChainOperationKind::ForwardKeep: {
        const ChainOption& option = block(index).options[as_index(operation.option)];
        pass(option.forward, option.saved_bytes);
        state.live |= bit(ChainItem::Saved, index);
        state.kept[as_index(index)] = static_cast<std::uint8_t>(operation.option);
        break;
      }
      case ChainOperationKind::Backward:
        pass(block(index).options[state.kept[as_index(index)]].backward,
             chain_value_bytes(chain_, index) + block(index).gradient_bytes);
        forget(state, ChainItem::Saved, index);
        forget(state, ChainItem::Value, index);
        state.gradient = index;
        break;
      case ChainOperationKind::Drop:
        state.live &= ~bit(operation.item, index);
        if (operation.item == ChainItem::Saved) state.kept[as_index(index)] = 0;
        break;
      case ChainOperationKind::CopyOut:
        if (operation.item == ChainItem::Saved)
          state.lowered[as_index(index)] = state.kept[as_index(index)];
        begin_copy(state, operation, bytes(state, operation.item, index));
        break;
      case ChainOperationKind::CopyIn: {
        if (operation.item == ChainItem::Saved)
          state.kept[as_index(index)] = state.lowered[as_index(index)];
        const std::int64_t size = bytes(state, operation.item, index);
        result.peak_bytes = live + size;
        state.live |= bit(operation.item, index);
        begin_copy(state, operation, size);
        break;
      }
      case ChainOperationKind::WaitOut:
      case ChainOperationKind::WaitIn:
        result.seconds = state.lanes[operation.kind == ChainOperationKind::WaitOut ? 0 : 1][0].left;
        break;
    }
    pass_time(state, result.seconds, waits);
    return result;
  }

 private:
  static Items weights(Items items) { return items & ~((Items{1} << 2 * most_copied_blocks) - 1); }
  static std::size_t copies(const CopyState& state, std::size_t lane) {
    std::size_t count = 0;
    for (const CopyUnderWay& copy : state.lanes[lane]) count += copy.item >= 0 ? 1 : 0;
    return count;
  }
  static bool is_copied(const CopyState& state, std::size_t lane, ChainItem item, int index) {
    for (const CopyUnderWay& copy : state.lanes[lane]) {
      if (copy.item == item_number(item, index)) return true;
    }
    return false;
  }
  static ChainOperation wait_of(const CopyUnderWay& copy, bool out) {
    return {out ? ChainOperationKind::WaitOut : ChainOperationKind::WaitIn,
            static_cast<int>(copy.item) % most_copied_blocks, -1,
            static_cast<ChainItem>(static_cast<int>(copy.item) / most_copied_blocks)};
  }

  const ChainBlock& block(int index) const { return chain_.blocks[as_index(index)]; }
  std::int64_t bytes(const CopyState& state, ChainItem item, int index) const {
    if (item == ChainItem::Value) return chain_value_bytes(chain_, index);
    if (item == ChainItem::Weights) return block(index).weight_bytes;
    return block(index).options[state.kept[as_index(index)]].saved_bytes;
  }

  static bool is_there(const CopyState& state, ChainItem item, int index) {
    return (state.live & bit(item, index)) != 0 && !is_copied(state, 1, item, index);
  }
  bool has_value(const CopyState& state, int value) const {
    return (value < blocks_ && is_there(state, ChainItem::Value, value)) ||
           (value > 0 && is_there(state, ChainItem::Saved, value - 1));
  }
  bool value_is_live(const CopyState& state, int value) const {
    return (value < blocks_ && (state.live & bit(ChainItem::Value, value)) != 0) ||
           (value > 0 && (state.live & bit(ChainItem::Saved, value - 1)) != 0);
  }
  bool can_run(const CopyState& state, int block) const {
    return has_value(state, block) && is_there(state, ChainItem::Weights, block);
  }

  template <typename Offer>
  void expand_passes(const CopyState& state, int index, const Offer& offer) const {
    const int top = state.gradient - 1;
    if (options_.recompute && index < top && !value_is_live(state, index + 1))
      offer({ChainOperationKind::ForwardCheckpoint, index});
    const bool saved_below = (state.below & bit(ChainItem::Saved, index)) != 0;
    const bool free_output =
        index + 1 == blocks_ || (state.live & bit(ChainItem::Value, index + 1)) == 0;
    if ((state.live & bit(ChainItem::Saved, index)) == 0 && free_output &&
        !(options_.once && saved_below)) {
      for (int k = 0; k < static_cast<int>(block(index).options.size()); ++k)
        offer({ChainOperationKind::ForwardKeep, index, k});
    }
    if (index == top && is_there(state, ChainItem::Saved, index) &&
        !is_copied(state, 0, ChainItem::Saved, index) &&
        !is_copied(state, 0, ChainItem::Value, index))
      offer({ChainOperationKind::Backward, index});
  }

  template <typename Offer>
  void expand_item(const CopyState& state, ChainItem item, int index, const Offer& offer) const {
    const Items one = bit(item, index);
    const bool below = (state.below & one) != 0;
    const bool is_weights = item == ChainItem::Weights;
    if (is_weights ? block(index).weight_bytes == 0 : index >= state.gradient) return;
    // What is dropped before anything is done is below at the start: another of starts().
    if (is_weights && (state.live & one) != 0 && nothing_is_done(state)) return;
    const bool moves = item != ChainItem::Value || options_.move_values;
    if ((state.live & one) != 0) {
      if (is_copied(state, 0, item, index) || is_copied(state, 1, item, index)) return;
      // The input cannot be made again.
      const bool lost_for_good = item == ChainItem::Value && index == 0;
      if (below || (item == ChainItem::Value && options_.recompute && !lost_for_good))
        offer({ChainOperationKind::Drop, index, -1, item});
      const bool left = item == ChainItem::Saved && state.lowered[as_index(index)] == has_left_once;
      if (chain_.links && moves && !below && !left && can_begin(state, 0))
        offer({ChainOperationKind::CopyOut, index, -1, item});
    } else if (below && can_begin(state, 1) &&
               (item != ChainItem::Value || !value_is_live(state, index))) {
      offer({ChainOperationKind::CopyIn, index, -1, item});
    }
  }

  bool nothing_is_done(const CopyState& state) const {
    return state.gradient == blocks_ && weights(state.below) == state.below &&
           (state.live & ~weights(state.live)) == bit(ChainItem::Value, 0) &&
           copies(state, 0) == 0 && copies(state, 1) == 0;
  }

  bool can_begin(const CopyState& state, std::size_t lane) const {
    if (options_.one_direction && copies(state, 1 - lane) > 0) return false;
    return copies(state, lane) < lane_length;
  }

  void begin_copy(CopyState& state, const ChainOperation& operation, std::int64_t size) const {
    const bool out = operation.kind == ChainOperationKind::CopyOut;
    auto& lane = state.lanes[out ? 0 : 1];
    const double rate =
        out ? chain_.links->out_bytes_per_second : chain_.links->in_bytes_per_second;
    const double seconds = copies_take_time_ ? static_cast<double>(size) / rate : 0;
    const std::size_t place = lane[0].item < 0 ? 0 : 1;
    lane[place].left = (place == 0 ? 0 : lane[0].left) + seconds;
    lane[place].item = item_number(operation.item, operation.block);
  }

  void forget(CopyState& state, ChainItem item, int index) const {
    state.live &= ~bit(item, index);
    state.below &= ~bit(item, index);
    if (item != ChainItem::Saved) return;
    state.kept[as_index(index)] = 0;
    state.lowered[as_index(index)] = 0;
  }

  void pass_time(CopyState& state, double seconds, std::vector<ChainOperation>* waits) const {
    for (std::size_t l = 0; l < state.lanes.size(); ++l) {
      auto& lane = state.lanes[l];
      for (CopyUnderWay& copy : lane) {
        if (copy.item >= 0) copy.left -= seconds;
      }
      while (lane[0].item >= 0 && lane[0].left <= 0) {
        if (waits != nullptr) waits->push_back(wait_of(lane[0], l == 0));
        const Items one = Items{1} << lane[0].item;
        if (l == 0) {
          state.below |= one;
        } else if (options_.once) {
          state.below &= ~one;
          state.lowered[static_cast<std::size_t>(lane[0].item % most_copied_blocks)] =
              has_left_once;
        }
        lane[0] = lane[1];
        lane[1] = CopyUnderWay();
      }
    }
  }

  const Chain& chain_;
  const CopySearchOptions& options_;
  bool copies_take_time_;
  int blocks_;
  std::vector<std::pair<double, double>> least_;  // of both passes, of the backward
};

struct Node {
  CopyState state;
  ChainOperation operation;
  std::int64_t before = -1;
};

struct Open {
  double estimate;
  double cost;
  std::int64_t node;

  // Of equal estimates the one that is further.
  bool operator<(const Open& other) const {
    return std::pair(other.estimate, -other.cost) < std::pair(estimate, -cost);
  }
};

struct Found {
  std::int64_t end = -1;  // node
  bool complete = false;
  double bound = 0;
};

// Least cost to an end, where `join` makes a path's cost of what is before and an outcome.
template <typename Join, typename Rest>
class Shortest {
 public:
  Shortest(const CopyStates& states, double upper, std::int64_t most_states, Join join, Rest rest)
      : states_(states), upper_(upper), most_states_(most_states), join_(join), rest_(rest) {}

  Found run() {
    for (const CopyState& state : states_.starts())
      reach({state, {}, -1}, static_cast<double>(start_cost(state)));
    Found found;
    while (!open_.empty()) {
      const Open top = open_.top();
      open_.pop();
      const CopyState state = nodes_[static_cast<std::size_t>(top.node)].state;
      if (best_.at(state).first < top.cost) continue;
      found.bound = top.estimate;
      if (states_.is_end(state)) {
        found.end = top.node;
        found.complete = true;
        return found;
      }
      if (static_cast<std::int64_t>(best_.size()) > most_states_) return found;
      states_.expand(state, [&](const ChainOperation& operation, const Outcome& outcome) {
        reach({outcome.state, operation, top.node}, join_(top.cost, outcome));
      });
    }
    found.complete = true;
    found.bound = upper_;
    return found;
  }

  std::int64_t states() const { return static_cast<std::int64_t>(best_.size()); }

  std::vector<ChainOperation> operations(std::int64_t end) const {
    std::vector<std::int64_t> path;
    for (std::int64_t node = end; node >= 0; node = node_at(node).before) path.push_back(node);
    std::reverse(path.begin(), path.end());
    std::vector<ChainOperation> operations;
    for (int block = 0; block < most_copied_blocks; ++block) {
      const CopyState& start = node_at(path.front()).state;
      if (((start.below & ~start.live) & bit(ChainItem::Weights, block)) != 0)
        operations.push_back({ChainOperationKind::Drop, block, -1, ChainItem::Weights});
    }
    for (std::size_t k = 1; k < path.size(); ++k) {
      const Node& node = node_at(path[k]);
      const bool is_wait = node.operation.kind == ChainOperationKind::WaitOut ||
                           node.operation.kind == ChainOperationKind::WaitIn;
      if (!is_wait) operations.push_back(node.operation);
      std::vector<ChainOperation> waits;
      states_.outcome(node_at(path[k - 1]).state, node.operation, &waits);
      operations.insert(operations.end(), waits.begin(), waits.end());
    }
    return operations;
  }

 private:
  double start_cost(const CopyState& state) const {
    return join_(0, Outcome{state, 0, states_.live_bytes(state)});
  }
  const Node& node_at(std::int64_t node) const { return nodes_[static_cast<std::size_t>(node)]; }

  void reach(const Node& node, double cost) {
    const double estimate = cost + rest_(node.state);
    if (!(estimate < upper_)) return;
    const auto [known, fresh] = best_.try_emplace(node.state, cost, 0);
    if (!fresh && known->second.first <= cost) return;
    known->second = {cost, static_cast<std::int64_t>(nodes_.size())};
    open_.push({estimate, cost, static_cast<std::int64_t>(nodes_.size())});
    nodes_.push_back(node);
  }

  const CopyStates& states_;
  double upper_;
  std::int64_t most_states_;
  Join join_;
  Rest rest_;
  std::unordered_map<CopyState, std::pair<double, std::int64_t>, CopyStateHash> best_;
  std::vector<Node> nodes_;
  std::priority_queue<Open> open_;
};

}  // namespace

bool can_search_copies(const Chain& chain) {
  return chain.blocks.size() <= static_cast<std::size_t>(most_copied_blocks) &&
         std::all_of(chain.blocks.begin(), chain.blocks.end(), [](const ChainBlock& block) {
           return block.options.size() <= static_cast<std::size_t>(most_copied_options);
         });
}

CopySearchAnswer search_copies(const Chain& chain, std::int64_t budget_bytes,
                               const CopySearchOptions& options) {
  static_assert(most_items <= 32);
  expect(can_search_copies(chain), "a chain of which all sequences are looked at is small");
  const CopyStates states(chain, options, true);
  Shortest search(
      states, options.upper_seconds, options.most_states,
      [&](double cost, const Outcome& outcome) {
        return outcome.peak_bytes <= budget_bytes ? cost + outcome.seconds : unreachable;
      },
      [&](const CopyState& state) { return states.least_seconds(state); });
  const Found found = search.run();
  CopySearchAnswer answer;
  answer.complete = found.complete;
  answer.lower_bound_seconds = found.bound;
  answer.states = search.states();
  if (found.end >= 0) answer.operations = search.operations(found.end);
  return answer;
}

std::optional<LeanestCopies> leanest_with_copies(const Chain& chain, std::int64_t most_states) {
  expect(can_search_copies(chain), "a chain of which all sequences are looked at is small");
  const CopySearchOptions options;
  const CopyStates states(chain, options, false);
  Shortest search(
      states, unreachable, most_states,
      [](double cost, const Outcome& outcome) {
        return std::max(cost, static_cast<double>(outcome.peak_bytes));
      },
      [](const CopyState&) { return 0.0; });
  const Found found = search.run();
  if (found.end < 0) return std::nullopt;
  return LeanestCopies{static_cast<std::int64_t>(found.bound), search.operations(found.end)};
}

}  // namespace garonne::plan
