// Micro-batches of token windows, read ahead of their use.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/read_ahead.hpp"
#include "data/tokens/token_samples.hpp"

namespace garonne::data {

// What of the samples is wanted: the rest is not read, and empty in the micro-batches.
struct TokenParts {
  bool tokens = true;
  bool targets = true;
};

// Sample k of a dataset covers its tokens [k · sequence, k · sequence + sequence]: the first
// `sequence` are inputs, the last `sequence` their targets.
struct MicroBatch {
  std::int64_t ordinal = 0;  // of a stream
  std::vector<std::int64_t> samples;
  std::vector<std::int64_t> tokens;   // [samples, sequence]
  std::vector<std::int64_t> targets;  // [samples, sequence]: tokens one place later
};

// Micro-batches first_ordinal, first_ordinal + 1, … of one dataset, up to `depth` of them read
// ahead. For one consuming thread. The destructor waits for at most the micro-batch being read.
class TokenStream {
 public:
  // `end_ordinal`: the first ordinal not wanted; -1 = endless. IoError when a file cannot serve.
  TokenStream(std::shared_ptr<Reader> reader, TokenSamples samples, SamplesOf samples_of,
              std::int64_t first_ordinal, std::int64_t end_ordinal = -1, TokenParts parts = {},
              int depth = 4);
  // Of one file; errors as of TokenSamples.
  TokenStream(std::shared_ptr<Reader> reader, const std::string& path, const std::string& dataset,
              std::int64_t sequence, SamplesOf samples_of, std::int64_t first_ordinal,
              std::int64_t end_ordinal = -1, TokenParts parts = {}, int depth = 4);
  // With a thread of its own.
  TokenStream(const std::string& path, const std::string& dataset, std::int64_t sequence,
              SamplesOf samples_of, std::int64_t first_ordinal, std::int64_t end_ordinal = -1,
              TokenParts parts = {}, int depth = 4);
  ~TokenStream();
  TokenStream(TokenStream&&) noexcept;
  TokenStream& operator=(TokenStream&&) noexcept;

  // The next micro-batch; waits for it. What went wrong on the reader's thread is thrown here when
  // its turn comes, and again by every later call: IoError for a wrong checksum, a token outside
  // the vocabulary or a shortened file. InternalError past end_ordinal or for a sample out of
  // range.
  MicroBatch next();

  const TokenSamples& samples() const;

 private:
  class Source;

  std::unique_ptr<ReadAhead<Source>> ahead_;
};

// One micro-batch, read on the calling thread; for commands and checks. Errors as above.
MicroBatch read_micro_batch(const TokenSamples& samples, std::span<const std::int64_t> wanted);
MicroBatch read_micro_batch(const std::string& path, const std::string& dataset,
                            std::int64_t sequence, std::span<const std::int64_t> samples);

}  // namespace garonne::data
