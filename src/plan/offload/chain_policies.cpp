#include <utility>

#include "plan/chain/chain_solver.hpp"
#include "plan/offload/offload_policy.hpp"

namespace garonne::plan {
namespace {

OffloadPolicy policy_of(const ChainSolver& solver, std::vector<MemoryWay> ways) {
  OffloadPolicy policy;
  policy.name = solver.name;
  policy.help = "on the chain of blocks: " + solver.help;
  policy.schedule = "keep-all";
  policy.ways = std::move(ways);
  policy.chain_solver = solver.name;
  return policy;
}

}  // namespace

OffloadPolicy pofo_policy() {
  return policy_of(pofo_solver(), {MemoryWay::Recompute, MemoryWay::OffloadActivations});
}

OffloadPolicy offload_greedy_policy() {
  return policy_of(offload_greedy_solver(),
                   {MemoryWay::OffloadActivations, MemoryWay::OffloadWeights});
}

OffloadPolicy offload_greedy_star_policy() {
  return policy_of(offload_greedy_star_solver(),
                   {MemoryWay::OffloadActivations, MemoryWay::OffloadWeights});
}

}  // namespace garonne::plan
