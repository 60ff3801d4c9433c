// All sequences of a small chain with copies to the tier below and back, shortest first: what the
// solvers of chains with bandwidths are held to. A* over what is live, what is below and how long
// the lanes are busy. Source of the model: Beaumont, Eyraud-Dubois, Shilova, "Efficient combination
// of rematerialization and offloading" (NeurIPS 2021), with whole values and records.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "plan/chain/chain.hpp"

namespace garonne::plan {

inline constexpr int most_copied_blocks = 8;
inline constexpr int most_copied_options = 200;

// Whether search_copies() can take the chain.
bool can_search_copies(const Chain& chain);

struct CopySearchOptions {
  // What a sequence may do.
  bool recompute = true;       // false: all forwards keep, and what is dropped has a copy below
  bool move_values = true;     // that are live by themselves
  bool once = false;           // each block keeps once, and each copy goes out and comes back once
  bool one_direction = false;  // no copy begins while one the other way is under way

  double upper_seconds = std::numeric_limits<double>::infinity();  // only faster ones
  std::int64_t most_states = std::numeric_limits<std::int64_t>::max();
};

struct CopySearchAnswer {
  std::optional<std::vector<ChainOperation>> operations;
  bool complete = false;           // all were looked at
  double lower_bound_seconds = 0;  // of all that may be faster than upper_seconds
  std::int64_t states = 0;
};

// The fastest within the budget. At most two copies are under way in each direction.
CopySearchAnswer search_copies(const Chain& chain, std::int64_t budget_bytes,
                               const CopySearchOptions& options);

struct LeanestCopies {
  std::int64_t bytes = 0;
  std::vector<ChainOperation> operations;
};
// The least budget that any sequence needs, and one that needs no more; nothing where that takes
// more than `most_states`.
std::optional<LeanestCopies> leanest_with_copies(const Chain& chain, std::int64_t most_states);

}  // namespace garonne::plan
