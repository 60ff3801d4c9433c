// Byte-pair encoding of single words: the merges, and what they make of a word.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace garonne::data {

// Begins with a token for each byte and merges, again and again, of all neighbours that a merge
// names those of the earliest merge, the leftmost of these first (Sennrich, Haddow and Birch 2016;
// of equal merges Hugging Face takes the leftmost, too). Does not change once made.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t left = 0;
    std::uint32_t right = 0;
    std::uint32_t merged = 0;
  };

  // `byte_tokens`: the token of each of the 256 bytes. `merges`: the earliest first; one that comes
  // again counts as what comes last. `whole_words`: words that are one token whatever the merges
  // say.
  MergeTable(std::span<const std::uint32_t> byte_tokens, std::span<const Merge> merges,
             std::unordered_map<std::string, std::uint32_t> whole_words = {});

  // Appends the tokens of `word`.
  void encode(std::string_view word, std::vector<std::uint32_t>& tokens) const;

 private:
  struct Slot {
    std::uint64_t pair = 0;
    std::uint32_t rank = 0;
    std::uint32_t merged = 0;
  };
  // Null where no merge names the two.
  const Slot* find(std::uint32_t left, std::uint32_t right) const;
  void encode_short(std::string_view word, std::vector<std::uint32_t>& tokens) const;
  void encode_long(std::string_view word, std::vector<std::uint32_t>& tokens) const;

  std::vector<std::uint32_t> byte_tokens_;
  std::vector<Slot> slots_;  // a power of two of them, by hash
  std::unordered_map<std::string, std::uint32_t> whole_words_;
};

// What words have become before, for one thread. Forgets everything when it has grown large.
class WordCache {
 public:
  explicit WordCache(const MergeTable& merges);

  // As MergeTable::encode.
  void encode(std::string_view word, std::vector<std::uint32_t>& tokens);

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t word = 0;   // where in words_
    std::uint32_t bytes = 0;  // 0: free
    std::uint32_t token = 0;  // where in tokens_
    std::uint32_t tokens = 0;
  };
  void clear();
  void grow();

  const MergeTable* merges_;
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  std::string words_;
  std::vector<std::uint32_t> tokens_;
};

}  // namespace garonne::data
