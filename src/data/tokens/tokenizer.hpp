// Text to tokens and back. A tokenizer has a name, which a token file records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace garonne::data {

// Stateless once made, so one object may serve several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string name() const = 0;
  // Number of different tokens; every token is below it.
  virtual std::int64_t vocabulary() const = 0;
  // Appends the tokens of `text`. A long text arrives in blocks that end after a newline wherever
  // there is one, so a tokenizer whose tokens never span a newline sees no difference.
  virtual void encode(std::span<const std::byte> text,
                      std::vector<std::uint32_t>& tokens) const = 0;
  // The bytes that `tokens` stand for. ConfigError on a token outside the vocabulary.
  virtual std::string decode(std::span<const std::uint32_t> tokens) const = 0;
};

// Names that make_tokenizer knows. To add one: a class and a row of the table in tokenizer.cpp.
std::vector<std::string> tokenizer_names();

// ConfigError (key "tokenizer") for a name that is not in tokenizer_names().
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name);

}  // namespace garonne::data
