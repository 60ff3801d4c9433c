#include "data/tokenizers/merge_table.hpp"

#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <queue>
#include <tuple>

#include "base/error.hpp"

namespace garonne::data {
namespace {

constexpr std::uint32_t no_rank = std::numeric_limits<std::uint32_t>::max();
// No two tokens make it, since there are fewer than 2³² of them.
constexpr std::uint64_t no_pair = std::numeric_limits<std::uint64_t>::max();
// Up to here looking at all neighbours again is faster than a queue of them.
constexpr std::size_t short_word = 64;

// A word of a cache; longer ones hardly come again.
constexpr std::size_t longest_cached = 64;
// About 64 MiB with words and tokens.
constexpr std::size_t most_cached = std::size_t{1} << 20;

std::uint64_t pair_of(std::uint32_t left, std::uint32_t right) {
  return (std::uint64_t{left} << 32U) | right;
}

std::size_t place_of(std::uint64_t pair, std::size_t slots) {
  return static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15U) >> 17U) & (slots - 1);
}

}  // namespace

MergeTable::MergeTable(std::span<const std::uint32_t> byte_tokens, std::span<const Merge> merges,
                       std::unordered_map<std::string, std::uint32_t> whole_words)
    : byte_tokens_(byte_tokens.begin(), byte_tokens.end()),
      slots_(std::bit_ceil(2 * merges.size() + 2), Slot{no_pair, no_rank, 0}),
      whole_words_(std::move(whole_words)) {
  expect(byte_tokens.size() == 256, "a merge table wants a token for each byte");
  std::uint32_t rank = 0;
  for (const Merge& merge : merges) {
    const std::uint64_t pair = pair_of(merge.left, merge.right);
    std::size_t place = place_of(pair, slots_.size());
    while (slots_[place].pair != no_pair && slots_[place].pair != pair)
      place = (place + 1) & (slots_.size() - 1);
    slots_[place] = {pair, rank++, merge.merged};
  }
}

const MergeTable::Slot* MergeTable::find(std::uint32_t left, std::uint32_t right) const {
  const std::uint64_t pair = pair_of(left, right);
  for (std::size_t place = place_of(pair, slots_.size());;
       place = (place + 1) & (slots_.size() - 1)) {
    if (slots_[place].pair == pair) return &slots_[place];
    if (slots_[place].pair == no_pair) return nullptr;
  }
}

void MergeTable::encode(std::string_view word, std::vector<std::uint32_t>& tokens) const {
  if (!whole_words_.empty()) {
    const auto whole = whole_words_.find(std::string(word));
    if (whole != whole_words_.end()) {
      tokens.push_back(whole->second);
      return;
    }
  }
  word.size() <= short_word ? encode_short(word, tokens) : encode_long(word, tokens);
}

void MergeTable::encode_short(std::string_view word, std::vector<std::uint32_t>& tokens) const {
  std::uint32_t symbols[short_word];
  const Slot* merges[short_word];  // of a symbol with the next
  std::size_t count = word.size();
  for (std::size_t i = 0; i < count; ++i)
    symbols[i] = byte_tokens_[static_cast<unsigned char>(word[i])];
  for (std::size_t i = 0; i + 1 < count; ++i) merges[i] = find(symbols[i], symbols[i + 1]);
  while (true) {
    std::size_t best = 0;
    std::uint32_t best_rank = no_rank;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      if (merges[i] != nullptr && merges[i]->rank < best_rank) {
        best = i;
        best_rank = merges[i]->rank;
      }
    }
    if (best_rank == no_rank) break;
    symbols[best] = merges[best]->merged;
    --count;
    for (std::size_t i = best + 1; i < count; ++i) {
      symbols[i] = symbols[i + 1];
      merges[i] = merges[i + 1];
    }
    if (best + 1 < count) merges[best] = find(symbols[best], symbols[best + 1]);
    if (best > 0) merges[best - 1] = find(symbols[best - 1], symbols[best]);
  }
  tokens.insert(tokens.end(), symbols, symbols + count);
}

void MergeTable::encode_long(std::string_view word, std::vector<std::uint32_t>& tokens) const {
  struct Symbol {
    std::uint32_t token = 0;
    std::size_t before = 0;
    std::size_t after = 0;
    bool gone = false;
  };
  constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
  std::vector<Symbol> symbols(word.size());
  // Rank, place, and the two tokens, which may be others by the time.
  using Candidate = std::tuple<std::uint32_t, std::size_t, std::uint64_t>;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](std::size_t place) {
    const std::size_t after = symbols[place].after;
    if (after == none) return;
    const Slot* merge = find(symbols[place].token, symbols[after].token);
    if (merge != nullptr) queue.emplace(merge->rank, place, merge->pair);
  };
  for (std::size_t i = 0; i < word.size(); ++i)
    symbols[i] = {byte_tokens_[static_cast<unsigned char>(word[i])], i == 0 ? none : i - 1,
                  i + 1 == word.size() ? none : i + 1, false};
  for (std::size_t i = 0; i < word.size(); ++i) consider(i);
  while (!queue.empty()) {
    const auto [rank, place, pair] = queue.top();
    queue.pop();
    Symbol& left = symbols[place];
    if (left.gone || left.after == none) continue;
    Symbol& right = symbols[left.after];
    if (pair_of(left.token, right.token) != pair) continue;
    left.token = find(left.token, right.token)->merged;
    right.gone = true;
    left.after = right.after;
    if (left.after != none) symbols[left.after].before = place;
    consider(place);
    if (left.before != none) consider(left.before);
  }
  for (std::size_t i = 0; i != none; i = symbols[i].after) tokens.push_back(symbols[i].token);
}

WordCache::WordCache(const MergeTable& merges) : merges_(&merges) {
  clear();
}

void WordCache::clear() {
  slots_.assign(std::size_t{1} << 14, Slot());
  used_ = 0;
  words_.clear();
  tokens_.clear();
}

void WordCache::grow() {
  std::vector<Slot> wider(2 * slots_.size());
  for (const Slot& slot : slots_) {
    if (slot.bytes == 0) continue;
    std::size_t place = slot.hash & (wider.size() - 1);
    while (wider[place].bytes != 0) place = (place + 1) & (wider.size() - 1);
    wider[place] = slot;
  }
  slots_ = std::move(wider);
}

void WordCache::encode(std::string_view word, std::vector<std::uint32_t>& tokens) {
  if (word.size() > longest_cached || word.empty()) {
    merges_->encode(word, tokens);
    return;
  }
  const std::uint64_t hash = XXH3_64bits(word.data(), word.size());
  std::size_t place = hash & (slots_.size() - 1);
  for (; slots_[place].bytes != 0; place = (place + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[place];
    if (slot.hash != hash || slot.bytes != word.size() ||
        words_.compare(slot.word, slot.bytes, word) != 0)
      continue;
    const std::uint32_t* first = tokens_.data() + slot.token;
    tokens.insert(tokens.end(), first, first + slot.tokens);
    return;
  }
  const std::size_t before = tokens.size();
  merges_->encode(word, tokens);
  if (used_ == most_cached) {
    clear();
    place = hash & (slots_.size() - 1);
  }
  slots_[place] = {hash, static_cast<std::uint32_t>(words_.size()),
                   static_cast<std::uint32_t>(word.size()),
                   static_cast<std::uint32_t>(tokens_.size()),
                   static_cast<std::uint32_t>(tokens.size() - before)};
  words_ += word;
  tokens_.insert(tokens_.end(), tokens.begin() + static_cast<std::ptrdiff_t>(before), tokens.end());
  if (2 * ++used_ > slots_.size()) grow();
}

}  // namespace garonne::data
