// Text to tokens and back. A tokenizer has a name, which a tokens file records, and most have a
// description beside it, which travels with the tokens, the run and its exports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace garonne::data {

// Encodes texts one after the other, each in blocks cut anywhere: the tokens are those of the whole
// text. For one calling thread; the tokenizer must outlive it.
class TokenEncoder {
 public:
  virtual ~TokenEncoder() = default;

  // Takes the next block and appends the tokens that nothing which follows can change.
  virtual void add(std::span<const std::byte> block, std::vector<std::uint32_t>& tokens) = 0;
  // The text ends here: appends the rest. The next block begins another text.
  virtual void finish(std::vector<std::uint32_t>& tokens) = 0;
};

// Does not change once made, so one object may serve several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // "byte", or the kind and what tells its description from others, as "bpe:0123456789abcdef".
  virtual std::string name() const = 0;
  // Every token is below it.
  virtual std::int64_t vocabulary() const = 0;
  // With so many threads for each block; the tokens do not depend on them. IoError where a run or a
  // tokens file has the tokenizer, and this version does not know how it cuts texts.
  virtual std::unique_ptr<TokenEncoder> encoder(int threads = 1) const = 0;
  // The bytes that `tokens` stand for, which need not be whole characters. ConfigError on a token
  // outside the vocabulary.
  virtual std::string decode(std::span<const std::uint32_t> tokens) const = 0;
  // Whether a token stands for something, so that decode takes it: a vocabulary may have gaps.
  virtual bool has(std::uint32_t token) const { return token < vocabulary(); }
  // What ends a document, where the tokenizer has such a token, and what a text begins with that
  // follows from nothing: the same where the tokenizer has no other.
  virtual std::optional<std::uint32_t> end_of_text() const { return std::nullopt; }
  virtual std::optional<std::uint32_t> begin_of_text() const { return end_of_text(); }
  // How a token is written that marks something in a text, as "</s>"; empty for all others.
  virtual std::string mark(std::uint32_t) const { return {}; }
  // The class of transformers that reads it.
  virtual std::string transformers_class() const { return "PreTrainedTokenizerFast"; }
  // In what that one differs from this, as a sentence without its subject; empty where in nothing.
  virtual std::string transformers_difference() const { return {}; }
  // The names of transformers for marks, as eos_token, and how they are written, where these begin
  // and end texts.
  virtual std::vector<std::pair<std::string, std::string>> special_tokens(
      std::optional<std::uint32_t> begin, std::optional<std::uint32_t> end) const;
  // Equal for tokenizers of a kind that make the same ids of every text, and end documents alike,
  // though their files may differ: only where names differ is it worth the work.
  virtual std::string identity() const { return name(); }
  // The bytes from which make_tokenizer makes it again; empty where the name says enough.
  virtual const std::string& description() const;

  // Of one whole text.
  std::vector<std::uint32_t> encode(std::string_view text) const;
};

// Whether both are known to make the same ids of every text.
bool same_ids(const Tokenizer& first, const Tokenizer& second);

// Kinds that make_tokenizer knows. To add one: a class and a row of the table in tokenizer.cpp.
std::vector<std::string> tokenizer_names();

// Whether a name is of such a kind. A tokens file that another program wrote may say one that is
// not: its tokens can be trained on, and texts need a tokenizer that the user names.
bool is_known_tokenizer(const std::string& name);

// The file that others expect the description of a tokenizer of this name in; empty where there is
// none. ConfigError as make_tokenizer.
std::string tokenizer_file(const std::string& name);

// By what a tokens file or a run recorded. ConfigError (key "tokenizer"): a kind that is not in
// tokenizer_names(). IoError naming `file`: the description is damaged or another's.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& name, std::string description = {},
                                          const std::string& file = {});

// The file that transformers makes the same tokenizer from, for valid text.
struct TokenizerFile {
  std::string name;
  std::string content;
  // What the tokenizer came with and this file has not, since nothing is put around texts here:
  // "TemplateProcessing"; empty where it has all.
  std::string left_out;
};
TokenizerFile huggingface_tokenizer(const Tokenizer& tokenizer);

// By what a user gives: "byte"; a tokenizer.json of Hugging Face; a vocab.json with merges.txt
// beside it; a model of SentencePiece, by its name that ends in .model; or a folder that has one of
// them: tokenizer.model before the others, since it says more than what was made of it. A
// tokenizer.json that says one token a byte, as exports of models of bytes have it, is "byte".
// ConfigError (key "tokenizer") with the reason, also where other files of the folder have tokens
// that the tokenizer.model lacks, or a tokenizer.json cuts otherwise than a vocab.json beside it.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& given);

}  // namespace garonne::data
