// Contents of buffers as hashes, and memory that is poisoned where nobody has written. For the
// interpreter of Programs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace garonne::plan::test {

// The highest bit says that it comes from what nobody has written.
using Hash = std::uint64_t;
inline constexpr Hash poison = Hash{1} << 63;
inline constexpr Hash nought = 0;

inline Hash mix(Hash a, Hash b) {
  Hash x = (a ^ (a >> 29)) * 0x9E3779B97F4A7C15U + b;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93U;
  x ^= x >> 31;
  return (x & ~poison) | ((a | b) & poison);
}

inline Hash mix(Hash a, int b) {
  return mix(a, static_cast<Hash>(b) & ~poison);
}

inline Hash hash_of(std::string_view text) {
  Hash hash = 1469598103934665603U & ~poison;
  for (const char letter : text) hash = mix(hash, static_cast<Hash>(letter & 0xff));
  return hash;
}

// a + b in floating point: commutative, not associative.
inline Hash add(Hash a, Hash b) {
  if (a == nought) return b;
  if (b == nought) return a;
  return mix(mix(Hash{77}, std::min(a, b)), std::max(a, b));
}

using Contents = std::vector<Hash>;  // by element

inline Hash digest(const Contents& contents) {
  if (contents.size() == 1) return contents[0];
  Hash hash = 3;
  for (const Hash element : contents) hash = mix(hash, element);
  return hash;
}

// What a block of memory holds; it is given back with the last name for it.
using Storage = std::shared_ptr<Contents>;

inline void fill(Contents& contents, Hash whole) {
  if (contents.size() == 1) {
    contents[0] = whole;
    return;
  }
  for (std::size_t e = 0; e < contents.size(); ++e) contents[e] = mix(whole, static_cast<int>(e));
}

}  // namespace garonne::plan::test
