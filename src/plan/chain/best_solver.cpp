// Starts from rotor's sequence and leaves its class: small chains are searched whole, larger ones
// window by window, both bounded by counts. Where there are bandwidths: best_with_copies.hpp.
#include <algorithm>
#include <limits>

#include "plan/chain/best_with_copies.hpp"
#include "plan/chain/chain_improve.hpp"
#include "plan/chain/chain_lower_bound.hpp"
#include "plan/chain/chain_replay.hpp"
#include "plan/chain/chain_search.hpp"
#include "plan/chain/chain_solver.hpp"

namespace garonne::plan {
namespace {

constexpr std::int64_t states_of_a_small_chain = 400'000;
constexpr std::int64_t states_of_a_minimum = 100'000;
constexpr std::int64_t states_of_windows = 1'000'000;

bool is_small(const Chain& chain) {
  return chain.blocks.size() <= static_cast<std::size_t>(most_window_blocks);
}

struct Leanest {
  std::int64_t bytes = 0;
  std::optional<std::vector<ChainOperation>> operations;  // where rotor has none
};

// Between what every sequence needs and what rotor needs, by bisection.
Leanest find_leanest(const Chain& chain) {
  Leanest leanest{rotor_solver().minimum_budget(chain), std::nullopt};
  if (!is_small(chain)) return leanest;
  std::int64_t low = chain_lower_bound_bytes(chain);
  while (low < leanest.bytes) {
    const std::int64_t middle = low + (leanest.bytes - 1 - low) / 2;
    ChainWindow window = whole_chain(chain, middle);
    window.most_states = states_of_a_minimum;
    ChainWindowAnswer answer = search_window(chain, window);
    if (answer.operations) {
      leanest.bytes = replay_chain(chain, *answer.operations).peak_bytes;
      leanest.operations = std::move(answer.operations);
    } else {
      low = middle + 1;
    }
  }
  return leanest;
}

ChainAnswer solve(const Chain& chain, std::int64_t budget_bytes,
                  const ChainSolverOptions& options) {
  if (chain.links) return best_with_copies(chain, budget_bytes, options);
  ChainAnswer answer = rotor_solver().solve(chain, budget_bytes, options);
  answer.remark = "from rotor, " + answer.remark;
  if (!answer.operations) {
    const Leanest leanest = find_leanest(chain);
    if (leanest.bytes > budget_bytes) return answer;
    answer.operations = leanest.operations;
  }
  if (is_small(chain)) {
    ChainWindow window = whole_chain(chain, budget_bytes);
    const double seconds = replay_chain(chain, *answer.operations).seconds;
    window.upper_seconds = seconds * (1 - 1e-12);
    window.most_states = states_of_a_small_chain;
    const ChainWindowAnswer found = search_window(chain, window);
    if (found.operations) answer.operations = join_drops(*found.operations);
    if (found.complete) answer.remark = "no sequence is faster";
    answer.lower_bound_seconds = found.lower_bound_seconds * (1 - 1e-12);
    if (found.complete) return answer;
  }
  answer.operations = join_drops(improve_chain_sequence(chain, std::move(*answer.operations),
                                                        budget_bytes, states_of_windows));
  return answer;
}

}  // namespace

ChainSolver best_solver() {
  ChainSolver solver;
  solver.name = "best";
  solver.help =
      "rotor, then values dropped and made again, or on the tier below, wherever that pays";
  solver.solve = solve;
  solver.minimum_budget = [](const Chain& chain) {
    return chain.links ? least_with_copies(chain) : find_leanest(chain).bytes;
  };
  return solver;
}

}  // namespace garonne::plan
