#include "plan/chain/sequence_family.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "plan/chain/chain_replay.hpp"

namespace garonne::plan {

ChainSolver make_family_solver(std::string name, std::string help, SequenceFamily family) {
  const auto members = [one = family.one](const Chain& chain) {
    return one ? 1 : static_cast<int>(chain.blocks.size());
  };
  const auto solve = [members, make = family.make](const Chain& chain, std::int64_t budget_bytes,
                                                   const ChainSolverOptions&) {
    ChainAnswer answer;
    double least = std::numeric_limits<double>::infinity();
    for (int n = 1; n <= members(chain); ++n) {
      std::vector<ChainOperation> sequence = make(chain, n);
      const ChainReplay replay = replay_chain(chain, sequence);
      if (replay.peak_bytes > budget_bytes || replay.seconds >= least) continue;
      least = replay.seconds;
      answer.operations = std::move(sequence);
    }
    return answer;
  };
  const auto minimum = [members, make = family.make](const Chain& chain) {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (int n = 1; n <= members(chain); ++n)
      least = std::min(least, replay_chain(chain, make(chain, n)).peak_bytes);
    return least;
  };
  return {std::move(name), std::move(help), solve, minimum};
}

std::vector<ChainOperation> segmented_sequence(const Chain& chain, int segments) {
  const int blocks = static_cast<int>(chain.blocks.size());
  const auto begin = [&](int segment) {
    return static_cast<int>(static_cast<std::int64_t>(blocks) * segment / segments);
  };
  std::vector<ChainOperation> operations;
  for (int segment = 0; segment + 1 < segments; ++segment) {
    for (int block = begin(segment); block < begin(segment + 1); ++block) {
      operations.push_back({block == begin(segment) ? ChainOperationKind::ForwardCheckpoint
                                                    : ChainOperationKind::ForwardDiscard,
                            block});
    }
  }
  for (int segment = segments - 1; segment >= 0; --segment) {
    for (int block = begin(segment); block < begin(segment + 1); ++block)
      operations.push_back({ChainOperationKind::ForwardKeep, block, 0});
    for (int block = begin(segment + 1) - 1; block >= begin(segment); --block)
      operations.push_back({ChainOperationKind::Backward, block});
  }
  return operations;
}

}  // namespace garonne::plan
