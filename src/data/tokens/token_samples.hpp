// Samples out of files of tokens: windows of one file, or of several in proportions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/tokens/token_file.hpp"

namespace garonne::data {

// A file of a blend and its share.
struct WeightedPath {
  double weight = 1;
  std::string path;
  std::string dataset = {};  // of the file; empty = that of all files
};

// "tokens.h5", or files in proportions: "0.7*first.idx, 0.3*second.bin". A text that is the name of
// a file is that file. ConfigError (`key`): a weight that is not above 0, an empty path.
std::vector<WeightedPath> parse_blend(const std::string& key, const std::string& text);

// What a set of samples is made of.
struct TokenPart {
  TokenFileInfo file;
  std::string dataset;       // "tokens" or "validation"
  double weight = 1;         // as it was given
  std::int64_t windows = 0;  // of the file
  std::int64_t samples = 0;  // that are taken from it: each window once or more often
};

// Samples [0, samples()). Of several files those of the first come first; the order of training
// (sample_order.hpp) mixes them. A value.
class TokenSamples {
 public:
  TokenSamples() = default;
  // Windows of `sequence` tokens and their targets. Where there are several files there are as many
  // samples as let every window of each come at least once and their numbers be as the weights.
  // `vocabulary`: of files that do not say theirs. IoError: a file that cannot serve, or has less
  // than one window; ConfigError: `sequence` below 1, files of different tokenizers or
  // vocabularies, too many samples.
  TokenSamples(const std::string& key, const std::vector<WeightedPath>& files,
               const std::string& dataset, std::int64_t sequence, std::int64_t vocabulary = 0);

  const std::vector<TokenPart>& parts() const { return parts_; }
  std::int64_t sequence() const { return sequence_; }
  std::int64_t samples() const { return samples_; }
  // The part, by its number, and the window in it. InternalError for a sample that is not there.
  std::pair<std::size_t, std::int64_t> place(std::int64_t sample) const;

  // Of all files: the one that they say, or what was given.
  std::int64_t vocabulary() const { return vocabulary_; }
  std::string tokenizer() const { return tokenizer_; }  // empty where no file says one
  std::int64_t tokens() const;                          // of all files, each once

 private:
  std::vector<TokenPart> parts_;
  std::int64_t sequence_ = 0;
  std::int64_t samples_ = 0;
  std::int64_t vocabulary_ = 0;
  std::string tokenizer_;
};

}  // namespace garonne::data
