// The tokens file: an HDF5 file with the datasets `tokens` (training) and, where there is one,
// `validation`, each 1-D, unsigned 16-bit (32-bit above a vocabulary of 65,536), chunked, with
// Fletcher-32; attributes of the file: `format` = "garonne.tokens", `format_version` = 1,
// `vocabulary`, `tokenizer`, and `sources`, a JSON list of {name, dataset, tokens}. The dataset
// `tokenizer` holds the bytes from which the tokenizer is made, where its name does not say enough.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace garonne::data {

class ForeignReader;
class Hdf5Dataset;
class Hdf5File;
class Tokenizer;

inline constexpr const char* token_file_format = "garonne.tokens";
inline constexpr std::int64_t token_file_version = 1;
inline constexpr const char* training_dataset = "tokens";
inline constexpr const char* validation_dataset = "validation";
inline constexpr const char* tokenizer_dataset = "tokenizer";

// Tokens of a chunk. Small enough that a shuffle block (sample_order.hpp) covers several, so that
// few of the tokens read are not used; large enough that the checksum and the call cost little.
inline constexpr std::int64_t token_file_chunk = 32768;

// One text that went into a dataset: its name and its tokens, the separator after it included.
struct TokenSource {
  std::string name;
  std::string dataset;
  std::int64_t tokens = 0;
};

struct TokenFileInfo {
  std::string format = token_file_format;  // or that of foreign_tokens.hpp
  std::string path;
  std::int64_t file_bytes = 0;
  std::int64_t format_version = 0;
  std::string tokenizer;               // empty: the format does not say it
  std::int64_t vocabulary = 0;         // 0: nor that
  std::int64_t tokens = 0;             // of `tokens`
  std::int64_t validation_tokens = 0;  // of `validation`; 0 when there is none
  int bytes_per_token = 0;             // 2 or 4
  std::int64_t chunk_tokens = 0;       // 0 = not chunked
  bool checksummed = false;            // every chunk of every dataset
  std::vector<TokenSource> sources;    // may be empty
  std::int64_t documents = -1;         // -1: the format does not say it

  // Tokens of the dataset `name` ("tokens" or "validation").
  std::int64_t tokens_of(const std::string& name) const;
};

// Non-overlapping windows of `sequence` tokens and one more, the last target: (tokens - 1) /
// sequence.
constexpr std::int64_t windows(std::int64_t tokens, std::int64_t sequence) {
  return tokens < 1 || sequence < 1 ? 0 : (tokens - 1) / sequence;
}

// Reads the description, not the tokens. IoError naming file and dataset or attribute when the file
// is missing, truncated, not HDF5, of another format or a newer version, or not of this schema; for
// files of other programs as find_foreign_tokens. `foreign` as Hdf5File::open takes it, here and
// below.
TokenFileInfo inspect_token_file(const std::string& path,
                                 std::shared_ptr<ForeignReader> foreign = nullptr);

// The tokenizer that a tokens file was made with; null where the format does not say it. IoError
// where it is damaged or not there; ConfigError for one of a kind that is not known.
std::unique_ptr<Tokenizer> read_tokenizer(const std::string& path,
                                          std::shared_ptr<ForeignReader> foreign = nullptr);

// Whether both files have tokens of one tokenizer, by its name or, where names differ, by the ids
// that it makes (same_ids); not where one of them does not say it. Throws as read_tokenizer.
bool same_tokenizer(const TokenFileInfo& first, const TokenFileInfo& second);

// Likewise of a file and of the tokenizer of this name, which `open` opens.
bool is_of_tokenizer(const TokenFileInfo& file, const std::string& name,
                     const std::function<std::unique_ptr<Tokenizer>()>& open);

// Reads every token of every dataset: IoError for a wrong checksum or a token outside the
// vocabulary. Returns the largest token; -1 where there is none.
std::int64_t verify_token_file(const std::string& path, bool show_progress = false,
                               std::shared_ptr<ForeignReader> foreign = nullptr);

// The same facts for people (several lines, the last one ended) and for programs.
std::string describe(const TokenFileInfo& info);
nlohmann::json token_file_json(const TokenFileInfo& info);

// For the code of this room: the description of an open file, and one of its datasets checked
// against the schema.
TokenFileInfo inspect_open_file(const Hdf5File& file);
Hdf5Dataset open_tokens(const Hdf5File& file, const std::string& name);

}  // namespace garonne::data
