#include "plan/chain/random_chains.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <random>

#include "base/index.hpp"
#include "plan/chain/chain_replay.hpp"
#include "plan/chain/chain_solver.hpp"

namespace garonne::plan::test {
namespace {

using Sequence = std::vector<ChainOperation>;

// All ways to do interval [first, last] as the class allows: a block is kept, or a later value is
// stored first.
void for_each_persistent(const Chain& chain, int first, int last, Sequence& done,
                         const std::function<void()>& then) {
  if (first > last) {
    then();
    return;
  }
  const std::size_t before = done.size();
  for (int k = 0; k < static_cast<int>(chain.blocks[as_index(first)].options.size()); ++k) {
    done.push_back({ChainOperationKind::ForwardKeep, first, k});
    for_each_persistent(chain, first + 1, last, done, [&] {
      done.push_back({ChainOperationKind::Backward, first});
      then();
      done.pop_back();
    });
    done.resize(before);
  }
  for (int j = first + 1; j <= last; ++j) {
    done.push_back({ChainOperationKind::ForwardCheckpoint, first});
    for (int q = first + 1; q < j; ++q) done.push_back({ChainOperationKind::ForwardDiscard, q});
    for_each_persistent(chain, j, last, done,
                        [&] { for_each_persistent(chain, first, j - 1, done, then); });
    done.resize(before);
  }
}

// All operations that may come next, and what they lead to.
struct State {
  int gradient;
  std::vector<char> plain;
  std::vector<int> kept;
  auto operator<=>(const State&) const = default;
};

class StateGraph {
 public:
  explicit StateGraph(const Chain& chain)
      : chain_(chain), blocks_(static_cast<int>(chain.blocks.size())) {}

  State start() const {
    State state{blocks_, std::vector<char>(as_index(blocks_), 0),
                std::vector<int>(as_index(blocks_), -1)};
    state.plain[0] = 1;
    return state;
  }

  // visit(next, seconds, peak)
  template <typename Visit>
  void expand(const State& state, const Visit& visit) const {
    const std::int64_t live = live_bytes(state);
    const int top = state.gradient - 1;
    for (int i = 0; i <= top; ++i) {
      const ChainBlock& block = chain_.blocks[as_index(i)];
      if (i > 0 && state.plain[as_index(i)] != 0) {
        State next = state;
        next.plain[as_index(i)] = 0;
        visit(next, 0.0, live);
      }
      if (!has(state, i)) continue;
      if (i < top && !has(state, i + 1)) {
        State next = state;
        next.plain[as_index(i + 1)] = 1;
        visit(next, block.forward.seconds,
              live + block.output_bytes + block.forward.transient_bytes);
      }
      if (state.kept[as_index(i)] < 0 && (i == top || state.plain[as_index(i + 1)] == 0)) {
        for (int k = 0; k < static_cast<int>(block.options.size()); ++k) {
          const ChainOption& option = block.options[as_index(k)];
          State next = state;
          next.kept[as_index(i)] = k;
          visit(next, option.forward.seconds,
                live + option.saved_bytes + option.forward.transient_bytes);
        }
      }
      if (i == top && state.kept[as_index(i)] >= 0) {
        const ChainOption& option = block.options[as_index(state.kept[as_index(i)])];
        State next = state;
        next.kept[as_index(i)] = -1;
        next.plain[as_index(i)] = 0;
        next.gradient = i;
        visit(next, option.backward.seconds,
              live + value_bytes(i) + block.gradient_bytes + option.backward.transient_bytes);
      }
    }
  }

  std::int64_t live_bytes(const State& state) const {
    std::int64_t live = value_bytes(state.gradient);
    for (int i = 0; i < blocks_; ++i) {
      if (state.plain[as_index(i)] != 0) live += value_bytes(i);
      if (state.kept[as_index(i)] >= 0)
        live += chain_.blocks[as_index(i)].options[as_index(state.kept[as_index(i)])].saved_bytes;
      if (i >= state.gradient) live += chain_.blocks[as_index(i)].gradient_bytes;
    }
    return live;
  }

 private:
  std::int64_t value_bytes(int i) const {
    return i == 0 ? chain_.input_bytes : chain_.blocks[as_index(i - 1)].output_bytes;
  }
  static bool has(const State& state, int i) {
    return state.plain[as_index(i)] != 0 || (i > 0 && state.kept[as_index(i - 1)] >= 0);
  }

  const Chain& chain_;
  int blocks_;
};

// Least cost of reaching gradient 0, where `join` makes the cost of a path of the cost so far and
// an operation's.
template <typename Cost, typename Join>
Cost shortest(const Chain& chain, Cost start_cost, Cost none, const Join& join) {
  const StateGraph graph(chain);
  std::map<State, Cost> best;
  using Entry = std::pair<Cost, State>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  open.push({start_cost, graph.start()});
  best[graph.start()] = start_cost;
  while (!open.empty()) {
    const auto [cost, state] = open.top();
    open.pop();
    if (best.at(state) < cost) continue;
    if (state.gradient == 0) return cost;
    graph.expand(state, [&, cost = cost](const State& next, double seconds, std::int64_t peak) {
      const Cost sum = join(cost, seconds, peak);
      if (!(sum < none)) return;
      const auto [known, fresh] = best.emplace(next, sum);
      if (!fresh && known->second <= sum) return;
      known->second = sum;
      open.push({sum, next});
    });
  }
  return none;
}

}  // namespace

std::string chain_family_name(int family) {
  static const std::array<const char*, chain_families> names = {
      "equal",           "mixed",     "growing",          "shrinking",
      "one-giant",       "zero-time", "zero-byte-values", "huge",
      "spiky transients"};
  return names.at(as_index(family));
}

std::int64_t keep_all_bytes(const Chain& chain) {
  return replay_chain(chain, keep_all_sequence(chain)).peak_bytes;
}

Chain random_chain(int family, std::uint64_t seed, int blocks, int most_options) {
  std::mt19937_64 random(seed * 1000003 + static_cast<std::uint64_t>(family));
  const auto whole = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  const std::int64_t unit = family == 7 ? (std::int64_t{1} << 40) + whole(0, 1000) : 1;
  const int giant = static_cast<int>(whole(0, blocks - 1));
  const bool parameters = seed % 3 == 0;
  Chain chain;
  chain.input_bytes = whole(1, 6) * unit;
  ChainBlock equal;
  if (family == 0) equal = random_chain(1, seed, 1, most_options).blocks[0];
  for (int i = 0; i < blocks; ++i) {
    ChainBlock block;
    if (family == 0) {
      block = equal;
      block.name = "block." + std::to_string(i);
      chain.blocks.push_back(block);
      continue;
    }
    std::int64_t scale = 1;
    if (family == 2) scale = 1 + 2 * i;
    if (family == 3) scale = 1 + 2 * (blocks - 1 - i);
    if (family == 4 && i == giant) scale = 20;
    block.name = "block." + std::to_string(i);
    block.output_bytes = whole(1, 5) * scale * unit;
    if (family == 6 && whole(0, 2) == 0) block.output_bytes = 0;
    if (i + 1 == blocks && whole(0, 1) == 0) block.output_bytes = 0;
    const std::int64_t spike = family == 8 ? 12 : 2;
    const auto transient = [&] { return whole(0, 2) == 0 ? whole(0, spike) * scale * unit : 0; };
    const auto seconds = [&] {
      if (family == 5 && whole(0, 1) == 0) return 0.0;
      return static_cast<double>(whole(1, 40)) / 8 * static_cast<double>(family == 4 ? scale : 1);
    };
    if (parameters) block.gradient_bytes = whole(0, 3) * unit;
    block.forward = {seconds(), transient()};
    const std::int64_t options = whole(1, most_options);
    std::int64_t saved = block.output_bytes;
    double backward = seconds() + block.forward.seconds;
    for (int k = 0; k < options; ++k) {
      saved += whole(0, 6) * scale * unit;
      ChainOption option;
      option.name = "option." + std::to_string(k);
      option.saved_bytes = saved;
      option.forward = {block.forward.seconds, transient()};
      option.backward = {backward, transient()};
      block.options.push_back(option);
      backward *= static_cast<double>(whole(5, 8)) / 8;
    }
    // Option 0 keeps most.
    std::reverse(block.options.begin(), block.options.end());
    chain.blocks.push_back(block);
  }
  return chain;
}

std::vector<Outcome> list_persistent(const Chain& chain) {
  std::map<std::int64_t, double> least;
  Sequence sequence;
  for_each_persistent(chain, 0, static_cast<int>(chain.blocks.size()) - 1, sequence, [&] {
    const ChainReplay replay = replay_chain(chain, sequence);
    const auto [entry, fresh] = least.emplace(replay.peak_bytes, replay.seconds);
    if (!fresh) entry->second = std::min(entry->second, replay.seconds);
  });
  std::vector<Outcome> outcomes;
  for (const auto& [bytes, seconds] : least) {
    if (outcomes.empty() || seconds < outcomes.back().seconds) outcomes.push_back({bytes, seconds});
  }
  return outcomes;
}

double fastest(const std::vector<Outcome>& outcomes, std::int64_t budget_bytes) {
  double seconds = std::numeric_limits<double>::infinity();
  for (const auto& outcome : outcomes) {
    if (outcome.bytes <= budget_bytes) seconds = outcome.seconds;
  }
  return seconds;
}

double fastest_of_all(const Chain& chain, std::int64_t budget_bytes) {
  const double none = std::numeric_limits<double>::infinity();
  return shortest<double>(chain, 0.0, none, [&](double sum, double seconds, std::int64_t peak) {
    return peak <= budget_bytes ? sum + seconds : none;
  });
}

std::int64_t leanest_of_all(const Chain& chain) {
  const StateGraph graph(chain);
  return shortest<std::int64_t>(
      chain, graph.live_bytes(graph.start()), std::numeric_limits<std::int64_t>::max(),
      [](std::int64_t most, double, std::int64_t peak) { return std::max(most, peak); });
}

}  // namespace garonne::plan::test
