// How collectives cut a buffer into pieces and what staging they need: one set of formulas, so that
// what the planner counts is what the transports touch.
#pragma once

#include <algorithm>
#include <cstdint>

namespace garonne {

// Elements of the piece that one member owns; the last pieces may be shorter, down to empty.
constexpr std::int64_t piece_elements(std::int64_t elements, std::int64_t members) {
  return (elements + members - 1) / members;
}

// First element of the piece of `member` (an index into the group), at most `elements`.
constexpr std::int64_t piece_begin(std::int64_t elements, std::int64_t members,
                                   std::int64_t member) {
  return std::min(elements, member * piece_elements(elements, members));
}

// One past the last element of the piece of `member`.
constexpr std::int64_t piece_end(std::int64_t elements, std::int64_t members, std::int64_t member) {
  return piece_begin(elements, members, member + 1);
}

// Bytes of the staging buffer of an all-reduce or reduce-scatter: the pieces of the other members.
constexpr std::int64_t all_reduce_staging_bytes(std::int64_t elements, std::int64_t element_bytes,
                                                std::int64_t members) {
  return members <= 1 ? 0 : (members - 1) * piece_elements(elements, members) * element_bytes;
}

}  // namespace garonne
