// Byte strings with a number each, walked byte by byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace garonne::data {

class ByteTrie {
 public:
  using Node = std::uint32_t;
  static constexpr Node root = 0;
  static constexpr Node none = UINT32_MAX;  // no such node; no number

  ByteTrie();

  // `text` has at least a byte; `value` is not none. A second number of a text replaces the first.
  void insert(std::string_view text, std::uint32_t value);

  Node step(Node node, unsigned char byte) const {
    const std::uint64_t key = key_of(node, byte);
    for (std::size_t at = place_of(key);; at = (at + 1) & mask_) {
      if (keys_[at] == key) return children_[at];
      if (keys_[at] == 0) return none;
    }
  }
  // Of the string that leads to the node; none where it is only the beginning of others.
  std::uint32_t value(Node node) const { return values_[node]; }

  struct Match {
    std::size_t bytes = 0;
    std::uint32_t value = none;
  };
  // The longest string that `text` begins with.
  std::optional<Match> longest(std::string_view text) const;

  bool empty() const { return values_.size() == 1; }
  std::size_t longest_bytes() const { return longest_bytes_; }

 private:
  static std::uint64_t key_of(Node node, unsigned char byte) {
    return ((std::uint64_t{node} << 8) | byte) + 1;
  }
  std::size_t place_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15U) >> 32) & mask_;
  }
  void grow();

  // Open addressing, at most half full; a key of 0 is a free place.
  std::vector<std::uint64_t> keys_;
  std::vector<Node> children_;
  std::size_t mask_ = 0;
  std::vector<std::uint32_t> values_;  // by node
  std::size_t longest_bytes_ = 0;
};

}  // namespace garonne::data
