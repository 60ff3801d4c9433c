// A sequence of tokens in a file, whatever the file's format.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace garonne::data {

class ForeignReader;

// For one thread.
class TokenInput {
 public:
  virtual ~TokenInput() = default;

  virtual std::int64_t tokens() const = 0;
  // Copies tokens [first, first + values.size()), which must exist. IoError naming the file: it
  // cannot be read, is damaged, has become shorter, or has a token outside the vocabulary.
  virtual void copy(std::int64_t first, std::span<std::int64_t> values) = 0;
};

// `dataset`: "tokens" or "validation". `vocabulary`: of which the tokens have to be; 0 = that of
// the file, or any token where the file does not say it. About `kept_bytes` of what was read stay
// in memory. `foreign` as Hdf5File::open takes it. IoError as inspect_token_file.
std::unique_ptr<TokenInput> open_token_input(const std::string& path, const std::string& dataset,
                                             std::int64_t vocabulary, std::int64_t kept_bytes,
                                             std::shared_ptr<ForeignReader> foreign = nullptr);

}  // namespace garonne::data
