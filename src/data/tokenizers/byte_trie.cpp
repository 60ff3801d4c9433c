#include "data/tokenizers/byte_trie.hpp"

#include <algorithm>

namespace garonne::data {

ByteTrie::ByteTrie() : keys_(16), children_(16), mask_(15), values_(1, none) {}

void ByteTrie::grow() {
  std::vector<std::uint64_t> keys(2 * keys_.size());
  std::vector<Node> children(keys.size());
  mask_ = keys.size() - 1;
  for (std::size_t old = 0; old < keys_.size(); ++old) {
    if (keys_[old] == 0) continue;
    std::size_t at = place_of(keys_[old]);
    while (keys[at] != 0) at = (at + 1) & mask_;
    keys[at] = keys_[old];
    children[at] = children_[old];
  }
  keys_ = std::move(keys);
  children_ = std::move(children);
}

void ByteTrie::insert(std::string_view text, std::uint32_t value) {
  Node node = root;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    Node next = step(node, byte);
    if (next == none) {
      next = static_cast<Node>(values_.size());
      values_.push_back(none);
      if (2 * values_.size() > keys_.size()) grow();
      const std::uint64_t key = key_of(node, byte);
      std::size_t at = place_of(key);
      while (keys_[at] != 0) at = (at + 1) & mask_;
      keys_[at] = key;
      children_[at] = next;
    }
    node = next;
  }
  values_[node] = value;
  longest_bytes_ = std::max(longest_bytes_, text.size());
}

std::optional<ByteTrie::Match> ByteTrie::longest(std::string_view text) const {
  std::optional<Match> found;
  Node node = root;
  for (std::size_t i = 0; i < text.size(); ++i) {
    node = step(node, static_cast<unsigned char>(text[i]));
    if (node == none) break;
    if (values_[node] != none) found = Match{i + 1, values_[node]};
  }
  return found;
}

}  // namespace garonne::data
