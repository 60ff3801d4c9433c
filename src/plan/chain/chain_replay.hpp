// Checks a sequence of chain operations and adds up its bytes and seconds. Knows nothing of
// solvers: every answer of one has to pass here.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "plan/chain/chain.hpp"

namespace garonne::plan {

struct ChainReplay {
  std::int64_t peak_bytes = 0;
  double seconds = 0;
  // Of copies: bytes that went each way, the most that is below at a time but for weights, and
  // what the passes stood still for them.
  std::int64_t out_bytes = 0;
  std::int64_t in_bytes = 0;
  std::int64_t peak_below_bytes = 0;
  double waiting_seconds = 0;
};

// The operation that cannot be run, counted from 0; the number of operations where the end is
// incomplete.
class ChainReplayError : public Error {
 public:
  ChainReplayError(std::size_t operation, const std::string& reason);
  std::size_t operation() const { return operation_; }

 private:
  std::size_t operation_;
};

// Follows the table of operations of docs/formats.md. `during_bytes`, where given: what is live
// while each operation runs. Throws ChainReplayError.
ChainReplay replay_chain(const Chain& chain, const std::vector<ChainOperation>& operations,
                         std::vector<std::int64_t>* during_bytes = nullptr);

}  // namespace garonne::plan
