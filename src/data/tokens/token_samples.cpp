#include "data/tokens/token_samples.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <memory>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "data/hdf5/foreign_reader.hpp"
#include "data/tokens/foreign_tokens.hpp"

namespace garonne::data {
namespace {

// As many as SampleOrder can deal with.
constexpr double most_samples = 0x1p48;

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

WeightedPath parse_part(const std::string& key, const std::string& text) {
  const std::size_t star = text.find('*');
  if (star == std::string::npos) return {1, text};
  const std::string number = trimmed(text.substr(0, star));
  WeightedPath part = {0, trimmed(text.substr(star + 1))};
  const auto [end, error] =
      std::from_chars(number.data(), number.data() + number.size(), part.weight);
  if (error != std::errc() || end != number.data() + number.size() || !(part.weight > 0) ||
      !std::isfinite(part.weight)) {
    throw ConfigError(key, text, "must be a weight above 0, a star and a path, as 0.3*code.bin");
  }
  return part;
}

}  // namespace

std::vector<WeightedPath> parse_blend(const std::string& key, const std::string& text) {
  std::error_code error;
  if (std::filesystem::exists(text, error) || text.find_first_of(",*") == std::string::npos)
    return {{1, text}};
  std::vector<WeightedPath> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(parse_part(key, trimmed(text.substr(begin, end - begin))));
    if (parts.back().path.empty())
      throw ConfigError(key, text, "has a part without a path between its commas");
    begin = end + 1;
  }
  return parts;
}

TokenSamples::TokenSamples(const std::string& key, const std::vector<WeightedPath>& files,
                           const std::string& dataset, std::int64_t sequence,
                           std::int64_t vocabulary)
    : sequence_(sequence), vocabulary_(vocabulary) {
  if (sequence < 1)
    throw ConfigError("sequence", fmt::format("{}", sequence), "must be at least 1");
  const std::string* said = nullptr;  // whose vocabulary it is
  double sum = 0;
  const auto foreign = std::make_shared<ForeignReader>();
  for (const WeightedPath& file : files) {
    TokenPart part{.file = inspect_token_file(file.path, foreign),
                   .dataset = file.dataset.empty() ? dataset : file.dataset,
                   .weight = file.weight};
    const TokenFileInfo& info = part.file;
    const std::int64_t tokens = info.tokens_of(part.dataset);
    part.windows = windows(tokens, sequence);
    if (part.windows < 1) {
      throw IoError(info.path, fmt::format("dataset \"{}\" has {} tokens; one sample of sequence "
                                           "{} takes {}",
                                           part.dataset, tokens, sequence, sequence + 1));
    }
    if (info.vocabulary > 0) {
      if (said != nullptr && info.vocabulary != vocabulary_) {
        throw ConfigError(key, file.path,
                          fmt::format("has a vocabulary of {}, and {} one of {}", info.vocabulary,
                                      *said, vocabulary_));
      }
      vocabulary_ = info.vocabulary;
      said = &file.path;
    }
    if (!info.tokenizer.empty()) {
      const auto named = std::find_if(parts_.begin(), parts_.end(), [](const TokenPart& other) {
        return !other.file.tokenizer.empty();
      });
      if (named != parts_.end() && !same_tokenizer(named->file, info)) {
        throw ConfigError(key, file.path,
                          fmt::format("was made with the tokenizer {}, and another "
                                      "file with {}",
                                      info.tokenizer, tokenizer_));
      }
      if (tokenizer_.empty()) tokenizer_ = info.tokenizer;
    }
    sum += file.weight;
    parts_.push_back(std::move(part));
  }
  expect(!parts_.empty(), "samples of no file");
  for (const TokenPart& part : parts_) {
    const std::string reason = why_not_of_vocabulary(part.file.format, vocabulary_);
    if (!reason.empty()) throw ConfigError(key, part.file.path, reason);
  }
  double total = 0;
  for (std::size_t i = 0; i < files.size(); ++i)
    total = std::max(total, static_cast<double>(parts_[i].windows) * sum / files[i].weight);
  if (total > most_samples)
    throw ConfigError(key, files[0].path, "and the others have too many samples by their weights");
  for (std::size_t i = 0; i < files.size(); ++i) {
    // Rounding may take one off the file that decides.
    const auto share = static_cast<std::int64_t>(std::llround(total * files[i].weight / sum));
    parts_[i].samples = files.size() == 1 ? parts_[i].windows : std::max(share, parts_[i].windows);
    samples_ += parts_[i].samples;
  }
}

std::pair<std::size_t, std::int64_t> TokenSamples::place(std::int64_t sample) const {
  std::int64_t left = sample;
  for (std::size_t i = 0; i < parts_.size() && left >= 0; ++i) {
    if (left < parts_[i].samples) return {i, left % parts_[i].windows};
    left -= parts_[i].samples;
  }
  throw InternalError(fmt::format("sample {} asked for, but there are {}", sample, samples_));
}

std::int64_t TokenSamples::tokens() const {
  std::int64_t sum = 0;
  for (const TokenPart& part : parts_) sum += part.file.tokens_of(part.dataset);
  return sum;
}

}  // namespace garonne::data
