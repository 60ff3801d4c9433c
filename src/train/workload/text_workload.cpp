#include "train/workload/text_workload.hpp"

#include <fmt/format.h>

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

}  // namespace

TextWorkload::TextWorkload(const RunConfig& config)
    : path_(config.data.path), sequence_(config.model.sequence) {
  if (path_.empty()) {
    throw ConfigError("data.path", "",
                      "is missing: the tokens file to train on (see `garonne data text --help`)");
  }
  file_ = data::inspect_token_file(path_);
  facts_.vocabulary = file_.vocabulary;
  facts_.tokenizer = file_.tokenizer;
  facts_.validation_samples = data::windows(file_.validation_tokens, sequence_);
  if (data::windows(file_.tokens, sequence_) < 1) {
    throw ConfigError("model.sequence", fmt::format("{}", sequence_),
                      fmt::format("is longer than the {} tokens of {}", file_.tokens, path_));
  }
}

std::string TextWorkload::summary() const {
  return fmt::format("{} · {} training tokens, {} validation tokens", path_, file_.tokens,
                     file_.validation_tokens);
}

nlohmann::json TextWorkload::manifest() const {
  return {{"path", path_},
          {"tokens", file_.tokens},
          {"vocabulary", file_.vocabulary},
          {"tokenizer", file_.tokenizer}};
}

dist::Facts TextWorkload::contents() const {
  return data::file_facts("data.path", {data::identify_token_file(path_)});
}

std::int64_t TextWorkload::samples(Part part) const {
  return data::windows(part == Part::Training ? file_.tokens : file_.validation_tokens, sequence_);
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
      data::TokenStream(std::move(reader), path_,
                        part == Part::Training ? data::training_dataset : data::validation_dataset,
                        sequence_, std::move(order.samples_of), order.first_ordinal,
                        order.end_ordinal, parts));
}

}  // namespace garonne::train
