#include "train/workload/workload.hpp"

#include <filesystem>
#include <system_error>

#include "base/error.hpp"
#include "data/sample_order.hpp"
#include "data/tokens/token_file.hpp"
#include "nn/fields/field_model.hpp"
#include "train/workload/field_workload.hpp"
#include "train/workload/text_workload.hpp"

namespace garonne::train {

std::unique_ptr<Workload> open_workload(const RunConfig& config) {
  if (nn::is_field_kind(config.model.kind)) return std::make_unique<FieldWorkload>(config);
  return std::make_unique<TextWorkload>(config);
}

DataFacts facts_of(const RunConfig& config) {
  if (nn::is_field_kind(config.model.kind)) return open_workload(config)->facts();
  DataFacts facts;
  facts.vocabulary = config.model.vocabulary;
  std::error_code error;
  if (facts.vocabulary > 0 && !std::filesystem::exists(config.data.path, error)) return facts;
  if (config.data.path.empty()) {
    throw ConfigError("model.vocabulary", "",
                      "is needed where data.path names no file that says it");
  }
  const data::TokenFileInfo info = data::inspect_token_file(config.data.path);
  facts.vocabulary = info.vocabulary;
  facts.tokenizer = info.tokenizer;
  facts.validation_samples = data::windows(info.validation_tokens, config.model.sequence);
  return facts;
}

}  // namespace garonne::train
