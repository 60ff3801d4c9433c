// Made-up chains of all kinds, and slow, obvious answers to them.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/chain/chain.hpp"

namespace garonne::plan::test {

inline constexpr int chain_families = 9;
std::string chain_family_name(int family);
// A function of its arguments.
Chain random_chain(int family, std::uint64_t seed, int blocks, int most_options);

// The peak of training that keeps everything.
std::int64_t keep_all_bytes(const Chain& chain);

struct Outcome {
  std::int64_t bytes;
  double seconds;
};

// Every memory-persistent sequence of the chain as (peak, seconds), by listing and replaying them;
// only those that no other dominates, by ascending bytes. Up to six blocks.
std::vector<Outcome> list_persistent(const Chain& chain);
// Seconds of the fastest within the budget; infinity if there is none.
double fastest(const std::vector<Outcome>& outcomes, std::int64_t budget_bytes);

// Seconds of the fastest legal sequence, by Dijkstra over all states; infinity if there is none.
double fastest_of_all(const Chain& chain, std::int64_t budget_bytes);
// The least budget with any legal sequence: the smallest peak over all states.
std::int64_t leanest_of_all(const Chain& chain);

}  // namespace garonne::plan::test
