#include <fmt/format.h>

#include <utility>

#include "plan/chain/chain_solver.hpp"
#include "plan/chain/copy_layout.hpp"
#include "plan/chain/gap_choice.hpp"

namespace garonne::plan {
namespace {

ChainSolver make_solver(std::string name, std::string help, GapRule rule) {
  ChainSolver solver;
  solver.name = std::move(name);
  solver.help = std::move(help);
  solver.refusal = refusal_without_links;
  solver.solve = [rule](const Chain& chain, std::int64_t budget_bytes, const ChainSolverOptions&) {
    ChainAnswer answer;
    answer.passes = keep_all_sequence(chain);
    const auto gaps =
        choose_gaps(chain, answer.passes, chain_gaps(chain, answer.passes), budget_bytes, rule);
    if (!gaps) return answer;
    answer.gaps = *gaps;
    auto laid_out = lay_out_copies(chain, answer.passes, *gaps, budget_bytes);
    if (!laid_out) return answer;
    answer.operations = std::move(laid_out->operations);
    answer.remark = fmt::format("{} gaps below", gaps->size());
    return answer;
  };
  solver.minimum_budget = [](const Chain& chain) {
    return bytes_without_gaps(chain, keep_all_sequence(chain));
  };
  solver.leanest = keep_all_sequence;
  return solver;
}

}  // namespace

ChainSolver offload_greedy_solver() {
  return make_solver("offload-greedy", "keep every block, and move what covers most, each once",
                     GapRule::Greedy);
}

ChainSolver offload_greedy_star_solver() {
  return make_solver("offload-greedy-star",
                     "keep every block, and move what covers most for its copies, however often",
                     GapRule::GreedyStar);
}

}  // namespace garonne::plan
