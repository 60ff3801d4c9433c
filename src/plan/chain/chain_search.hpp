// The fastest way from one state of a chain to another by A* over what is live: exact, and hopeless
// for more than some blocks. It leaves the class of persistent sequences: values are dropped and
// made again wherever that pays.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "plan/chain/chain.hpp"

namespace garonne::plan {

inline constexpr int most_window_blocks = 16;

// Blocks [low, high) of a chain, from gradient `high` to gradient `stop`. Lists are indexed from
// `low`: values[j] is value low+j.
struct ChainWindow {
  int low = 0;
  int high = 0;
  int stop = 0;
  // Value `low` is live for a reason outside, not counted here, and stays.
  bool low_is_outside = true;
  std::int64_t budget_bytes = 0;    // for what is inside, gradients of values included
  std::vector<bool> values;         // plain at the start
  std::vector<int> kept;            // option by block at the start, -1 for none
  std::vector<bool> needed_values;  // to be plain or inside saved bytes at the end, and no others
  std::vector<int> needed_kept;     // to be kept at the end, below `stop`
  double upper_seconds = std::numeric_limits<double>::infinity();  // only what is faster counts
  std::int64_t most_states = 0;
};

struct ChainWindowAnswer {
  std::optional<std::vector<ChainOperation>> operations;
  double seconds = 0;  // of the operations
  // Nothing is faster than this; where the search ran to its end without an answer,
  // `upper_seconds`.
  double lower_bound_seconds = 0;
  bool complete = false;
  std::int64_t states = 0;  // that were reached
};

ChainWindowAnswer search_window(const Chain& chain, const ChainWindow& window);

// The window that is all of a chain at its start.
ChainWindow whole_chain(const Chain& chain, std::int64_t budget_bytes);

// A forward that leaves its input, and a drop of that input next, become one operation.
std::vector<ChainOperation> join_drops(const std::vector<ChainOperation>& operations);

}  // namespace garonne::plan
