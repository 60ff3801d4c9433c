#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "plan/chain/chain_replay.hpp"
#include "plan/chain/chain_solver.hpp"
#include "plan/chain/copy_layout.hpp"
#include "plan/chain/gap_choice.hpp"
#include "plan/chain/pofo_labels.hpp"

namespace garonne::plan {
namespace {

constexpr std::size_t most_skeletons = 32;

void consider(const Chain& chain, std::int64_t budget_bytes, const PofoSkeleton& skeleton,
              double& seconds, ChainAnswer& answer) {
  // A fluid costs nothing as long as it has the time; whole copies do, so that only as many inputs
  // go as have to.
  std::vector<std::optional<std::vector<ChainGap>>> choices = {skeleton.gaps};
  for (const GapRule rule : {GapRule::Greedy, GapRule::GreedyStar})
    choices.push_back(choose_gaps(chain, skeleton.operations, skeleton.gaps, budget_bytes, rule));
  for (const auto& gaps : choices) {
    if (!gaps) continue;
    auto laid_out = lay_out_copies(chain, skeleton.operations, *gaps, budget_bytes);
    if (!laid_out || laid_out->seconds >= seconds) continue;
    seconds = laid_out->seconds;
    answer.operations = std::move(laid_out->operations);
    answer.passes = skeleton.operations;
    answer.gaps = *gaps;
  }
}

ChainAnswer solve(const Chain& chain, std::int64_t budget_bytes,
                  const ChainSolverOptions& options) {
  RotorOptions table_options;
  table_options.slots = options.slots;
  table_options.table_bytes = options.table_bytes;
  const std::int64_t rotor_least = rotor_solver().minimum_budget(chain);
  const RotorTable rotor(chain, std::max(budget_bytes, rotor_least), table_options);
  ChainAnswer answer;
  double seconds = std::numeric_limits<double>::infinity();
  if (budget_bytes >= rotor_least)
    consider(chain, budget_bytes, {*rotor.sequence(budget_bytes), {}}, seconds, answer);
  const PofoLeanest leanest = leanest_pofo(chain);
  if (leanest.bytes <= budget_bytes)
    consider(chain, budget_bytes, leanest.skeleton, seconds, answer);
  const PofoChoice choice = choose_pofo(chain, budget_bytes, rotor, seconds, most_skeletons);
  for (const PofoSkeleton& skeleton : choice.skeletons)
    consider(chain, budget_bytes, skeleton, seconds, answer);
  answer.remark = fmt::format("{} · {} inputs below",
                              choice.complete ? "all labels" : "some labels", answer.gaps.size());
  return answer;
}

}  // namespace

ChainSolver pofo_solver() {
  ChainSolver solver;
  solver.name = "pofo";
  solver.help = "rotor, with inputs of blocks on the tier below in between";
  solver.refusal = refusal_without_links;
  solver.solve = solve;
  solver.minimum_budget = [](const Chain& chain) {
    return std::min(leanest_pofo(chain).bytes, rotor_solver().minimum_budget(chain));
  };
  solver.leanest = [](const Chain& chain) { return leanest_pofo(chain).skeleton.operations; };
  return solver;
}

}  // namespace garonne::plan
