#include "data/tokens/token_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/json_input.hpp"
#include "base/printable.hpp"
#include "base/progress.hpp"
#include "data/hdf5/hdf5.hpp"
#include "data/tokens/token_pages.hpp"

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

TokenFileInfo inspect_token_file(const std::string& path) {
  return inspect_open_file(Hdf5File::open(path));
}

void verify_token_file(const std::string& path, bool show_progress) {
  const Hdf5File file = Hdf5File::open(path);
  const TokenFileInfo info = inspect_open_file(file);
  Progress progress("verify", info.tokens + info.validation_tokens, !show_progress);
  std::int64_t done = 0;
  for (const char* name : {training_dataset, validation_dataset}) {
    if (info.tokens_of(name) == 0) continue;
    TokenPages pages(file, name, info.vocabulary, 0);
    for (std::int64_t first = 0; first < pages.tokens(); first += pages.page_tokens()) {
      pages.load(first / pages.page_tokens());
      progress.advance_to(done + std::min(first + pages.page_tokens(), pages.tokens()));
    }
    done += pages.tokens();
  }
}

std::string describe(const TokenFileInfo& info) {
  std::string text = fmt::format("{}: {} version {}, {}\n", info.path, token_file_format,
                                 info.format_version, format_bytes(info.file_bytes));
  text += fmt::format("  tokenizer   {}, vocabulary {}\n", info.tokenizer, info.vocabulary);
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
  return {{"format", token_file_format},
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
}

}  // namespace garonne::data
