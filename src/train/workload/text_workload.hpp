// Windows of files of tokens (data/tokens/token_samples.hpp).
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "data/tokens/token_samples.hpp"
#include "train/run/metrics_file.hpp"
#include "train/workload/workload.hpp"

namespace garonne::train {

// What data.path has to train on. ConfigError where it is missing, where a window of model.sequence
// is longer than a file, and where neither files nor model.vocabulary say how many tokens there
// are; IoError where a file cannot serve.
data::TokenSamples training_samples(const RunConfig& config);

// What there is to validate on: data.validation, which the user gave by `key`, of each file its
// validation tokens where it has them, or the validation tokens of the training files; perhaps no
// samples. Errors as above.
data::TokenSamples validation_samples(const RunConfig& config, const data::TokenSamples& training,
                                      const std::string& key);

class TextWorkload final : public Workload {
 public:
  // Errors as of training_samples and validation_samples.
  TextWorkload(const RunConfig& config, const std::string& validation_key);
  // To evaluate a model of these facts on `files`, which the user gave by `key`, whatever it was
  // trained on: of each file the part `dataset`, where that is empty its validation tokens, and
  // where it has none its tokens. Nothing to train on. `open_tokenizer` opens the model's, which is
  // asked for where the files name another. Errors as above and of `open_tokenizer`, and
  // ConfigError for tokens that are not of the model's tokenizer or outside its vocabulary.
  TextWorkload(const RunConfig& config, const DataFacts& model, const std::string& key,
               const std::string& files, const std::string& dataset,
               const std::function<std::unique_ptr<data::Tokenizer>()>& open_tokenizer);

  const DataFacts& facts() const override { return facts_; }
  std::string summary() const override;
  std::unique_ptr<data::Tokenizer> tokenizer() const override;
  nlohmann::json manifest() const override;
  dist::Facts contents() const override;
  std::int64_t samples(Part part) const override;
  std::vector<ValidationSource> validation_sources() const override;
  std::int64_t shuffle_block() const override;
  std::string item() const override { return token_item; }
  std::int64_t items_per_sample() const override { return sequence_; }
  std::string loss_unit() const override { return "nats"; }
  std::unique_ptr<BatchStream> open(std::shared_ptr<data::Reader> reader, Part part,
                                    StreamOrder order) const override;

 private:
  const data::TokenSamples& part(Part part) const {
    return part == Part::Training ? training_ : validation_;
  }

  std::string path_;
  std::int64_t sequence_;
  data::TokenSamples training_;    // none to evaluate alone
  data::TokenSamples validation_;  // perhaps none
  DataFacts facts_;
};

}  // namespace garonne::train
