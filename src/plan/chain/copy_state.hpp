// Where a search over orders of copies stands: what is live and what is below, and what copies are
// under way.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "plan/chain/chain.hpp"
#include "plan/chain/copy_search.hpp"

namespace garonne::plan {

inline constexpr std::size_t lane_length = 2;  // copies of a lane that are under way

// Items by number: values 0 to L-1, saved bytes, weights; each has `most_copied_blocks` places.
using Items = std::uint32_t;  // a set of them

inline int item_number(ChainItem item, int index) {
  return static_cast<int>(item) * most_copied_blocks + index;
}
inline Items bit(ChainItem item, int index) {
  return Items{1} << item_number(item, index);
}

struct CopyUnderWay {
  double left = 0;  // seconds to its end
  std::int64_t item = -1;
};

// No padding: it is compared and hashed as bytes.
struct CopyState {
  std::array<std::array<CopyUnderWay, lane_length>, 2> lanes{};  // out, in
  Items live = 0;
  Items below = 0;
  Items start = 0;  // weights that are live then
  std::int32_t gradient = 0;
  std::array<std::uint8_t, most_copied_blocks> kept{};     // option of live saved bytes
  std::array<std::uint8_t, most_copied_blocks> lowered{};  // of those below

  bool operator==(const CopyState& other) const {
    return std::memcmp(this, &other, sizeof(CopyState)) == 0;
  }
};
static_assert(sizeof(CopyState) == 4 * sizeof(CopyUnderWay) + 16 + 2 * most_copied_blocks);

struct CopyStateHash {
  std::size_t operator()(const CopyState& state) const {
    std::array<std::uint64_t, sizeof(CopyState) / 8> words{};
    std::memcpy(words.data(), &state, sizeof(CopyState));
    std::uint64_t hash = 0x9E3779B97F4A7C15;
    for (const std::uint64_t word : words) {
      hash = (hash ^ word) * 0xBF58476D1CE4E5B9;
      hash ^= hash >> 29;
    }
    return hash;
  }
};

}  // namespace garonne::plan
