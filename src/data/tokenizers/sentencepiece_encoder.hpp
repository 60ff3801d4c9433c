// Normal texts to tokens of SentencePiece: by the likeliest pieces of a unigram model, or by the
// merges of BPE; and whole texts, block by block and by several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizers/byte_trie.hpp"
#include "data/tokenizers/sentencepiece_model.hpp"
#include "data/tokenizers/sentencepiece_normaliser.hpp"
#include "data/tokenizers/tokenizer.hpp"

namespace garonne::data {

// What all encoders of a tokenizer share. It refers into itself, and stays where it is.
struct SentencePieceRules {
  explicit SentencePieceRules(SentencePieceModel given);
  SentencePieceRules(const SentencePieceRules&) = delete;
  SentencePieceRules& operator=(const SentencePieceRules&) = delete;

  SentencePieceModel model;
  SentencePieceNormaliser normaliser;
  ByteTrie trie;                                                 // of a unigram model's pieces
  std::unordered_map<std::string_view, std::uint32_t> words;     // of BPE
  std::unordered_map<std::string_view, std::uint32_t> reserved;  // controls, bytes, unknown
  float unknown_score = 0;                                       // of a unigram model
  std::uint32_t of_bytes[256] = {};
};

// Sections of a text to tokens; for one thread.
class SectionEncoder {
 public:
  explicit SectionEncoder(const SentencePieceRules& rules) : rules_(&rules) {}

  void encode(std::string_view section, SentencePieceNormaliser::Ends ends,
              std::vector<std::uint32_t>& tokens);

 private:
  void unigram(std::string_view normal, std::vector<std::uint32_t>& tokens);
  void bpe(std::string_view normal, std::vector<std::uint32_t>& tokens);
  // Of what no piece joins with what is beside it.
  void merge(std::string_view word, std::vector<std::uint32_t>& tokens);
  void put(std::string_view text, std::uint32_t id, std::vector<std::uint32_t>& tokens) const;

  struct Best {
    float score = 0;
    std::int32_t begin = -1;
    std::uint32_t id = 0;
  };

  const SentencePieceRules* rules_;
  std::string normal_;
  std::vector<Best> best_;
  std::unordered_map<std::string, std::vector<std::uint32_t>> merged_;
};

class SentencePieceEncoder final : public TokenEncoder {
 public:
  SentencePieceEncoder(const SentencePieceRules& rules, std::string name, int threads);

  void add(std::span<const std::byte> block, std::vector<std::uint32_t>& tokens) override;
  void finish(std::vector<std::uint32_t>& tokens) override;

 private:
  void encode(bool text_ends, std::vector<std::uint32_t>& tokens);

  const SentencePieceRules& rules_;
  std::string name_;
  std::vector<SectionEncoder> workers_;
  std::string text_;          // from the last cut on
  std::size_t searched_ = 0;  // of it: up to there is no further cut
  bool begun_ = false;
};

}  // namespace garonne::data
