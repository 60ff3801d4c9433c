#include "train/workload/text_workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "data/file_identity.hpp"
#include "data/sample_order.hpp"
#include "data/tokens/token_stream.hpp"

namespace garonne::train {
namespace {

class TextStream final : public BatchStream {
 public:
  TextStream(std::vector<int> micro_batches, data::TokenStream stream)
      : BatchStream(std::move(micro_batches)), stream_(std::move(stream)) {}

 private:
  Numbered take() override {
    data::MicroBatch loaded = stream_.next();
    exec::HostBatch batch;
    batch.samples = std::move(loaded.samples);
    if (!loaded.tokens.empty()) batch.values["tokens"] = std::move(loaded.tokens);
    if (!loaded.targets.empty()) batch.values["targets"] = std::move(loaded.targets);
    return {loaded.ordinal, std::move(batch)};
  }

  data::TokenStream stream_;
};

// Files of `text`, which `key` has; a file that is too short for a sample is refused by key. Of
// each file the part `dataset`; where that is empty its validation tokens if it has them.
data::TokenSamples samples_of(const RunConfig& config, const std::string& key,
                              const std::string& text, const std::string& dataset,
                              std::int64_t vocabulary) {
  const std::int64_t sequence = config.model.sequence;
  std::vector<data::WeightedPath> files = data::parse_blend(key, text);
  for (data::WeightedPath& file : files) {
    const data::TokenFileInfo info = data::inspect_token_file(file.path);
    file.dataset = dataset;
    if (dataset.empty())
      file.dataset = info.validation_tokens > 0 ? data::validation_dataset : data::training_dataset;
    const bool validation = file.dataset == data::validation_dataset;
    const std::int64_t tokens = info.tokens_of(file.dataset);
    if (data::windows(tokens, sequence) > 0) continue;
    if (validation && tokens == 0) throw ConfigError(key, file.path, "holds no validation tokens");
    throw ConfigError("model.sequence", fmt::format("{}", sequence),
                      fmt::format("is longer than the {} {}tokens of {}", tokens,
                                  validation ? "validation " : "", file.path));
  }
  return {key, files, data::training_dataset, sequence, vocabulary};
}

// The first that says its tokenizer; null where none does.
const data::TokenFileInfo* naming_file(const data::TokenSamples& samples) {
  for (const data::TokenPart& part : samples.parts()) {
    if (!part.file.tokenizer.empty()) return &part.file;
  }
  return nullptr;
}

}  // namespace

data::TokenSamples training_samples(const RunConfig& config) {
  if (config.data.path.empty()) {
    throw ConfigError("data.path", "",
                      "is missing: the tokens file to train on (see `garonne data text --help`)");
  }
  data::TokenSamples samples = samples_of(config, "data.path", config.data.path,
                                          data::training_dataset, config.model.vocabulary);
  if (samples.vocabulary() == 0) {
    throw ConfigError("model.vocabulary", "",
                      fmt::format("is needed: {} does not say how many tokens there are; GPT-2 has "
                                  "50257",
                                  samples.parts()[0].file.path));
  }
  return samples;
}

data::TokenSamples validation_samples(const RunConfig& config, const data::TokenSamples& training,
                                      const std::string& key) {
  if (config.data.validation.empty()) {
    // What training files hold themselves.
    std::vector<data::WeightedPath> files;
    for (const data::TokenPart& part : training.parts()) {
      const std::int64_t tokens = part.file.validation_tokens;
      if (data::windows(tokens, training.sequence()) > 0)
        files.push_back({static_cast<double>(part.samples), part.file.path});
    }
    if (files.empty()) return {};
    return {"data.path", files, data::validation_dataset, training.sequence(),
            training.vocabulary()};
  }
  data::TokenSamples samples =
      samples_of(config, key, config.data.validation, {}, config.model.vocabulary);
  const auto refuse = [&](const std::string& what, const auto& here, const auto& there) {
    throw ConfigError(key, config.data.validation,
                      fmt::format("has {} {}, and data.path {}", what, here, there));
  };
  if (samples.vocabulary() > 0 && samples.vocabulary() != training.vocabulary())
    refuse("a vocabulary of", samples.vocabulary(), training.vocabulary());
  const data::TokenFileInfo* const here = naming_file(samples);
  const data::TokenFileInfo* const there = naming_file(training);
  if (here != nullptr && there != nullptr && !data::same_tokenizer(*here, *there))
    refuse("tokens of the tokenizer", samples.tokenizer(), training.tokenizer());
  return samples;
}

TextWorkload::TextWorkload(const RunConfig& config, const std::string& validation_key)
    : path_(config.data.path), sequence_(config.model.sequence) {
  training_ = training_samples(config);
  validation_ = validation_samples(config, training_, validation_key);
  facts_.vocabulary = training_.vocabulary();
  facts_.tokenizer = training_.tokenizer();
  facts_.validation_samples = validation_.samples();
}

TextWorkload::TextWorkload(const RunConfig& config, const DataFacts& model, const std::string& key,
                           const std::string& files, const std::string& dataset,
                           const std::function<std::unique_ptr<data::Tokenizer>()>& open_tokenizer)
    : path_(files), sequence_(config.model.sequence) {
  const std::int64_t vocabulary = std::max(config.model.vocabulary, model.vocabulary);
  validation_ = samples_of(config, key, files, dataset, vocabulary);
  if (validation_.vocabulary() > vocabulary) {
    throw ConfigError(key, files,
                      fmt::format("has a vocabulary of {}, and the model one of {}",
                                  validation_.vocabulary(), vocabulary));
  }
  const data::TokenFileInfo* const named = naming_file(validation_);
  if (named != nullptr && !model.tokenizer.empty() &&
      !data::is_of_tokenizer(*named, model.tokenizer, open_tokenizer)) {
    throw ConfigError(key, files,
                      fmt::format("has tokens of the tokenizer {}, and the model was trained on "
                                  "those of {}",
                                  validation_.tokenizer(), model.tokenizer));
  }
  facts_ = model;
  facts_.validation_samples = validation_.samples();
}

std::string TextWorkload::summary() const {
  std::string text = fmt::format("{} · {} training tokens, {} validation tokens", path_,
                                 training_.tokens(), validation_.tokens());
  if (training_.parts().size() == 1) return text;
  for (const data::TokenPart& part : training_.parts()) {
    text += fmt::format(
        "\n          {:5.1f} % {} · {:.2f} times in {} samples",
        100.0 * static_cast<double>(part.samples) / static_cast<double>(training_.samples()),
        part.file.path, static_cast<double>(part.samples) / static_cast<double>(part.windows),
        training_.samples());
  }
  return text;
}

std::unique_ptr<data::Tokenizer> TextWorkload::tokenizer() const {
  for (const data::TokenPart& part : training_.parts()) {
    if (!part.file.tokenizer.empty()) return data::read_tokenizer(part.file.path);
  }
  return nullptr;
}

nlohmann::json TextWorkload::manifest() const {
  return {{"path", path_},
          {"tokens", training_.tokens()},
          {"vocabulary", facts_.vocabulary},
          {"tokenizer", facts_.tokenizer}};
}

dist::Facts TextWorkload::contents() const {
  dist::Facts facts;
  for (const Part which : {Part::Training, Part::Validation}) {
    std::vector<data::FileIdentity> files;
    std::string samples;
    for (const data::TokenPart& file : part(which).parts()) {
      files.push_back(data::identify_token_file(file.file.path));
      samples += fmt::format("{} ", file.samples);
    }
    const std::string key = which == Part::Training ? "data.path" : "data.validation";
    if (files.empty()) continue;
    dist::append(data::file_facts(key, files), facts);
    facts.push_back({key + ", samples of each file", samples,
                     dist::advise("give every rank the same weights"), ""});
  }
  return facts;
}

std::int64_t TextWorkload::samples(Part part) const {
  return this->part(part).samples();
}

std::vector<ValidationSource> TextWorkload::validation_sources() const {
  std::vector<ValidationSource> sources;
  std::int64_t first = 0;
  for (const data::TokenPart& part : validation_.parts()) {
    sources.push_back({.path = part.file.path,
                       .part = part.dataset,
                       .weight = part.weight,
                       .first_sample = first,
                       .samples = part.windows});
    first += part.samples;
  }
  return sources;
}

std::int64_t TextWorkload::shuffle_block() const {
  return data::shuffle_block(sequence_);
}

std::unique_ptr<BatchStream> TextWorkload::open(std::shared_ptr<data::Reader> reader, Part part,
                                                StreamOrder order) const {
  const data::TokenParts parts = {.tokens = order.wants("tokens"),
                                  .targets = order.wants("targets")};
  return std::make_unique<TextStream>(
      std::move(order.micro_batches),
      data::TokenStream(std::move(reader), this->part(part), std::move(order.samples_of),
                        order.first_ordinal, order.end_ordinal, parts));
}

}  // namespace garonne::train
