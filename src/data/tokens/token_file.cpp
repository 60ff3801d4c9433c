#include "data/tokens/token_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_input.hpp"
#include "base/printable.hpp"
#include "base/progress.hpp"
#include "data/hdf5/foreign_reader.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "data/tokens/foreign_tokens.hpp"
#include "data/tokens/token_input.hpp"

namespace garonne::data {
namespace {

// Sources are for people; a list that cannot be read is not a reason to refuse the tokens, but a
// list of another shape is a sign of a foreign file.
std::vector<TokenSource> read_sources(const Hdf5File& file) {
  std::vector<TokenSource> sources;
  if (!file.has_attribute("sources")) return sources;
  const std::string place = "attribute \"sources\"";
  try {
    const nlohmann::json json = parse_json(file.string_attribute("sources"), place, FileOwner::Run);
    const JsonFile attribute(json, place, FileOwner::Run);
    for (const JsonPlace& entry : attribute.root().elements()) {
      sources.push_back({printable(entry.key("name").text()),
                         printable(entry.key("dataset").text()), entry.key("tokens").integer(0)});
    }
  } catch (const IoError& error) {
    if (error.path() != place) throw;
    throw IoError(file.path(), error.what());
  }
  return sources;
}

TokenFileInfo info_of(const ForeignTokens& foreign) {
  TokenFileInfo info;
  info.format = foreign.format;
  info.path = foreign.path;
  info.file_bytes = foreign.file_bytes;
  info.vocabulary = foreign.vocabulary;
  info.tokens = foreign.tokens;
  info.bytes_per_token = foreign.bytes_per_token;
  info.documents = foreign.documents;
  return info;
}

}  // namespace

std::int64_t TokenFileInfo::tokens_of(const std::string& name) const {
  if (name == training_dataset) return tokens;
  if (name == validation_dataset) return validation_tokens;
  throw IoError(path, fmt::format("there is no dataset \"{}\" in a tokens file; there are \"{}\" "
                                  "and \"{}\"",
                                  name, training_dataset, validation_dataset));
}

Hdf5Dataset open_tokens(const Hdf5File& file, const std::string& name) {
  Hdf5Dataset dataset = file.dataset(name);
  const auto refuse = [&](const std::string& what) {
    throw IoError(file.path(), fmt::format("dataset \"{}\" {}", printable(name), what));
  };
  if (dataset.shape().size() != 1) {
    refuse(fmt::format("has {} dimensions; tokens have 1", dataset.shape().size()));
  }
  const NumberType type = dataset.type();
  if (type.family != NumberFamily::Unsigned || (type.bytes != 2 && type.bytes != 4)) {
    refuse("does not hold unsigned integers of 16 or 32 bits");
  }
  // Chunks that were never written are zeros to HDF5, and zeros are tokens.
  const std::int64_t stored = dataset.stored_bytes();
  if (stored < dataset.declared_bytes()) {
    refuse(fmt::format("declares {} tokens, but what is stored holds {} at most",
                       dataset.shape()[0], stored / type.bytes));
  }
  return dataset;
}

TokenFileInfo inspect_open_file(const Hdf5File& file) {
  TokenFileInfo info;
  info.path = file.path();
  info.file_bytes = file.file_bytes();
  const std::string format = file.string_attribute("format");
  if (format != token_file_format) {
    throw IoError(info.path, fmt::format("attribute \"format\" is \"{}\", not \"{}\"",
                                         printable(format), token_file_format));
  }
  info.format_version = file.integer_attribute("format_version");
  if (info.format_version < 1 || info.format_version > token_file_version) {
    throw IoError(info.path,
                  fmt::format("attribute \"format_version\" is {}; this build reads 1 to {}",
                              info.format_version, token_file_version));
  }
  info.vocabulary = file.integer_attribute("vocabulary");
  if (info.vocabulary < 1 || info.vocabulary > std::int64_t{1} << 32) {
    throw IoError(info.path, fmt::format("attribute \"vocabulary\" is {}", info.vocabulary));
  }
  info.tokenizer = printable(file.string_attribute("tokenizer"));

  const Hdf5Dataset training = open_tokens(file, training_dataset);
  info.tokens = training.shape()[0];
  info.bytes_per_token = training.type().bytes;
  info.chunk_tokens = training.chunk_elements();
  info.checksummed = training.checksummed();
  if (file.has_dataset(validation_dataset)) {
    const Hdf5Dataset validation = open_tokens(file, validation_dataset);
    info.validation_tokens = validation.shape()[0];
    info.checksummed = info.checksummed && validation.checksummed();
  }
  info.sources = read_sources(file);
  return info;
}

std::unique_ptr<Tokenizer> read_tokenizer(const std::string& path,
                                          std::shared_ptr<ForeignReader> foreign) {
  if (find_foreign_tokens(path)) return nullptr;
  const Hdf5File file = Hdf5File::open(path, std::move(foreign));
  const TokenFileInfo info = inspect_open_file(file);
  if (!file.has_dataset(tokenizer_dataset)) {
    if (!is_known_tokenizer(info.tokenizer)) return nullptr;
    return make_tokenizer(info.tokenizer, {}, path);
  }
  const std::vector<std::uint8_t> bytes =
      file.dataset(tokenizer_dataset).read_all<std::uint8_t>(most_json_bytes);
  return make_tokenizer(info.tokenizer, std::string(bytes.begin(), bytes.end()), path);
}

bool same_tokenizer(const TokenFileInfo& first, const TokenFileInfo& second) {
  return is_of_tokenizer(first, second.tokenizer, [&] { return read_tokenizer(second.path); });
}

bool is_of_tokenizer(const TokenFileInfo& file, const std::string& name,
                     const std::function<std::unique_ptr<Tokenizer>()>& open) {
  if (file.tokenizer.empty() || name.empty()) return false;
  if (file.tokenizer == name) return true;
  if (!is_known_tokenizer(file.tokenizer) || !is_known_tokenizer(name)) return false;
  const auto one = read_tokenizer(file.path);
  const auto other = open();
  return one && other && same_ids(*one, *other);
}

TokenFileInfo inspect_token_file(const std::string& path, std::shared_ptr<ForeignReader> foreign) {
  if (const auto tokens = find_foreign_tokens(path)) return info_of(*tokens);
  return inspect_open_file(Hdf5File::open(path, std::move(foreign)));
}

std::int64_t verify_token_file(const std::string& path, bool show_progress,
                               std::shared_ptr<ForeignReader> foreign) {
  if (!foreign) foreign = std::make_shared<ForeignReader>();
  const TokenFileInfo info = inspect_token_file(path, foreign);
  Progress progress("verify", info.tokens + info.validation_tokens, !show_progress);
  std::int64_t done = 0;
  std::int64_t largest = -1;
  std::vector<std::int64_t> tokens;
  for (const char* name : {training_dataset, validation_dataset}) {
    const std::int64_t count = info.tokens_of(name);
    if (count == 0) continue;
    const auto input = open_token_input(path, name, 0, 0, foreign);
    for (std::int64_t first = 0; first < count; first += token_file_chunk) {
      tokens.resize(static_cast<std::size_t>(std::min(token_file_chunk, count - first)));
      input->copy(first, tokens);
      largest = std::max(largest, *std::max_element(tokens.begin(), tokens.end()));
      progress.advance_to(done + first);
    }
    done += count;
  }
  return largest;
}

std::string describe(const TokenFileInfo& info) {
  const bool own = info.format == token_file_format;
  std::string text =
      fmt::format("{}: {}{}, {}\n", info.path, info.format,
                  own ? fmt::format(" version {}", info.format_version) : std::string(),
                  format_bytes(info.file_bytes));
  text += fmt::format("  tokenizer   {}, vocabulary {}\n",
                      info.tokenizer.empty() ? "not said" : info.tokenizer,
                      info.vocabulary > 0 ? fmt::format("{}", info.vocabulary) : "not said");
  if (info.documents >= 0) text += fmt::format("  documents   {}\n", info.documents);
  text += fmt::format("  tokens      {} for training, {} for validation, {} bytes each\n",
                      info.tokens, info.validation_tokens, info.bytes_per_token);
  const std::string chunks = info.chunk_tokens > 0
                                 ? fmt::format("chunks of {} tokens", info.chunk_tokens)
                                 : std::string("not chunked");
  text += fmt::format(
      "  storage     {}, {}\n", chunks,
      info.checksummed ? "Fletcher-32 checksums" : "no checksums: damage would go unnoticed");
  for (const char* name : {training_dataset, validation_dataset}) {
    const auto of_dataset = [&](const TokenSource& source) { return source.dataset == name; };
    if (std::none_of(info.sources.begin(), info.sources.end(), of_dataset)) continue;
    text += fmt::format("  sources of \"{}\"\n", name);
    for (const TokenSource& source : info.sources) {
      if (of_dataset(source)) text += fmt::format("  {:>12}  {}\n", source.tokens, source.name);
    }
  }
  return text;
}

nlohmann::json token_file_json(const TokenFileInfo& info) {
  nlohmann::json sources = nlohmann::json::array();
  for (const TokenSource& source : info.sources) {
    sources.push_back(
        {{"name", source.name}, {"dataset", source.dataset}, {"tokens", source.tokens}});
  }
  nlohmann::json json = {{"format", info.format},
                         {"version", info.format_version},
                         {"path", info.path},
                         {"file_bytes", info.file_bytes},
                         {"tokenizer", info.tokenizer},
                         {"vocabulary", info.vocabulary},
                         {"tokens", info.tokens},
                         {"validation_tokens", info.validation_tokens},
                         {"bytes_per_token", info.bytes_per_token},
                         {"chunk_tokens", info.chunk_tokens},
                         {"checksummed", info.checksummed},
                         {"sources", sources}};
  if (info.documents >= 0) json["documents"] = info.documents;
  return json;
}

}  // namespace garonne::data
