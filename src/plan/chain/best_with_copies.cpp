#include "plan/chain/best_with_copies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "plan/chain/chain_replay.hpp"
#include "plan/chain/copy_layout.hpp"
#include "plan/chain/copy_search.hpp"
#include "plan/chain/gap_choice.hpp"
#include "plan/chain/pofo_labels.hpp"

namespace garonne::plan {
namespace {

// Budgets above the given one whose sequences are tried with what is too much below.
constexpr int most_mixtures = 6;
constexpr int most_layouts = 400;
constexpr std::int64_t states_of_a_small_mixture = 100'000;
constexpr std::int64_t states_of_a_least_mixture = 50'000;

using Sequence = std::vector<ChainOperation>;

bool same_gap(const ChainGap& a, const ChainGap& b) {
  return a.item == b.item && a.index == b.index && a.last_use == b.last_use;
}

class Mixture {
 public:
  Mixture(const Chain& chain, std::int64_t budget_bytes)
      : chain_(chain), budget_bytes_(budget_bytes) {}

  void consider(const Sequence& passes) {
    const std::vector<ChainGap> all = chain_gaps(chain_, passes);
    for (const GapRule rule : {GapRule::Greedy, GapRule::GreedyStar}) {
      const auto gaps = choose_gaps(chain_, passes, all, budget_bytes_, rule);
      if (gaps) consider(passes, *gaps);
    }
  }

  bool consider(const Sequence& passes, const std::vector<ChainGap>& gaps) {
    auto laid_out = lay_out_copies(chain_, passes, gaps, budget_bytes_);
    ++layouts_;
    if (!laid_out || !(laid_out->seconds < seconds_ * (1 - 1e-12))) return false;
    seconds_ = laid_out->seconds;
    answer_.operations = std::move(laid_out->operations);
    answer_.passes = passes;
    answer_.gaps = gaps;
    return true;
  }

  // Every gap the other way round, and every one below for every one that is not, as long as one
  // of them is faster.
  void improve() {
    if (!answer_.operations) return;
    bool found = true;
    while (found && layouts_ < most_layouts) {
      found = false;
      const Sequence passes = answer_.passes;
      const std::vector<ChainGap> all = chain_gaps(chain_, passes);
      for (std::size_t k = 0; k < all.size() && layouts_ < most_layouts; ++k) {
        const std::vector<ChainGap> turned = turn(answer_.gaps, all[k]);
        if (consider(passes, turned)) {
          found = true;
          continue;
        }
        if (turned.size() < answer_.gaps.size()) continue;
        const std::vector<ChainGap> below = answer_.gaps;
        for (std::size_t j = 0; j < below.size() && layouts_ < most_layouts; ++j)
          found = consider(passes, turn(turned, below[j])) || found;
      }
    }
  }

  void search_whole() {
    if (!can_search_copies(chain_)) return;
    CopySearchOptions options;
    options.upper_seconds = seconds_ * (1 - 1e-12);
    options.most_states = states_of_a_small_mixture;
    const CopySearchAnswer found = search_copies(chain_, budget_bytes_, options);
    if (found.operations) {
      answer_.operations = found.operations;
      answer_.passes.clear();
      answer_.gaps.clear();
    }
    if (found.complete) answer_.remark = "no sequence is faster";
    answer_.lower_bound_seconds = found.lower_bound_seconds * (1 - 1e-12);
  }

  void take(Sequence operations) {
    if (answer_.operations) return;
    seconds_ = replay_chain(chain_, operations).seconds;
    answer_.operations = std::move(operations);
  }

  ChainAnswer answer() const { return answer_; }
  bool has_answer() const { return answer_.operations.has_value(); }

 private:
  static std::vector<ChainGap> turn(std::vector<ChainGap> gaps, const ChainGap& gap) {
    const auto same = [&](const ChainGap& other) { return same_gap(gap, other); };
    if (std::erase_if(gaps, same) == 0) gaps.push_back(gap);
    return gaps;
  }

  const Chain& chain_;
  std::int64_t budget_bytes_;
  double seconds_ = std::numeric_limits<double>::infinity();
  int layouts_ = 0;
  ChainAnswer answer_;
};

}  // namespace

ChainAnswer best_with_copies(const Chain& chain, std::int64_t budget_bytes,
                             const ChainSolverOptions& options) {
  Mixture mixture(chain, budget_bytes);
  // Weights may be below, so that others have their room; the solvers of sequences know none.
  const Chain bare = without_weights(chain);
  const Sequence keep_all = keep_all_sequence(chain);
  mixture.consider(keep_all);
  mixture.consider(leanest_pofo(chain).skeleton.operations);
  const std::int64_t weights = chain_weight_bytes(chain);
  const std::int64_t whole = replay_chain(bare, keep_all).peak_bytes;
  const std::int64_t least = rotor_solver().minimum_budget(bare);
  const std::int64_t from = std::clamp(budget_bytes - weights, least, std::max(least, whole));
  RotorOptions table_options;
  table_options.slots = options.slots;
  table_options.table_bytes = options.table_bytes;
  const RotorTable rotor(bare, std::max(least, whole), table_options);
  for (int n = 0; n < most_mixtures; ++n) {
    const std::int64_t more = (std::max(least, whole) - from) * n / most_mixtures;
    if (const auto sequence = rotor.sequence(from + more)) mixture.consider(*sequence);
  }
  const ChainSolver pofo = pofo_solver();
  const std::int64_t pofo_least = pofo.minimum_budget(bare);
  for (const std::int64_t bytes : {budget_bytes - weights, budget_bytes}) {
    if (bytes < pofo_least || (bytes != budget_bytes && weights == 0)) continue;
    const ChainAnswer answer = pofo.solve(bare, bytes, options);
    if (!answer.operations) continue;
    if (bytes == budget_bytes - weights || weights == 0)
      mixture.consider(answer.passes, answer.gaps);
    mixture.consider(answer.passes);
  }
  mixture.improve();
  if (!mixture.has_answer() && can_search_copies(chain)) {
    const auto leanest = leanest_with_copies(chain, states_of_a_least_mixture);
    if (leanest && leanest->bytes <= budget_bytes) mixture.take(leanest->operations);
  }
  if (mixture.has_answer()) mixture.search_whole();
  return mixture.answer();
}

std::int64_t least_with_copies(const Chain& chain) {
  std::int64_t least = std::min(bytes_without_gaps(chain, keep_all_sequence(chain)),
                                bytes_without_gaps(chain, leanest_pofo(chain).skeleton.operations));
  const Chain bare = without_weights(chain);
  const std::int64_t rotor_least = rotor_solver().minimum_budget(bare);
  least = std::min(
      least, bytes_without_gaps(chain, *RotorTable(bare, rotor_least, {}).sequence(rotor_least)));
  if (!can_search_copies(chain)) return least;
  const auto leanest = leanest_with_copies(chain, states_of_a_least_mixture);
  return leanest ? std::min(least, leanest->bytes) : least;
}

}  // namespace garonne::plan
