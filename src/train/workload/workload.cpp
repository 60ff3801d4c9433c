#include "train/workload/workload.hpp"

#include <fmt/format.h>

#include <map>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "nn/model_kind.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::train {

void Workload::expect_like(const nlohmann::json& data, const std::string& checkpoint,
                           const std::string& path) const {
  const std::string difference = difference_from(data, checkpoint);
  if (!difference.empty())
    throw ConfigError("data.path", path, difference + ", whose model was trained on such fields");
}

nlohmann::json hashes_by_key(const dist::Facts& contents) {
  std::map<std::string, std::string> texts;
  for (const dist::Fact& fact : contents)
    texts[fact.name.substr(0, fact.name.find(','))] += fact.name + "\n" + fact.value + "\n";
  nlohmann::json hashes = nlohmann::json::object();
  for (const auto& [key, text] : texts) hashes[key] = hash_text(text);
  return hashes;
}

std::string other_statistics_warning(const Workload& workload, const nlohmann::json& trained_on,
                                     const std::string& path) {
  constexpr const char* key = "data.statistics";
  const nlohmann::json trained =
      trained_on.is_object() ? trained_on.value("contents", nlohmann::json()) : nlohmann::json();
  const nlohmann::json now = hashes_by_key(workload.contents());
  if (!trained.is_object() || !trained.contains(key) || !now.contains(key)) return {};
  if (trained.at(key) == now.at(key)) return {};
  return fmt::format(
      "the statistics of {} are others than the model was trained with: fields are normalised by "
      "other numbers; put the first ones back",
      path.empty() ? std::string("its data") : path);
}

const WorkloadKind& workload_kind(const std::string& model_kind) {
  switch (nn::model_kind(model_kind).learns_from) {
    case nn::LearnsFrom::Tokens:
      return text_kind();
    case nn::LearnsFrom::Fields:
      return fields_kind();
  }
  throw InternalError("a model learns from nothing");
}

void expect_model_of(const WorkloadKind& wanted, const std::string& model_kind,
                     const std::string& option, const std::string& value) {
  if (&workload_kind(model_kind) == &wanted) return;
  throw ConfigError(
      option, value,
      fmt::format("wants a model of {}; this run's is {}", wanted.name(), model_kind));
}

std::unique_ptr<Workload> open_workload(const RunConfig& config,
                                        const std::string& validation_key) {
  return workload_kind(config.model.kind).open(config, validation_key);
}

DataFacts facts_of(const RunConfig& config) {
  return workload_kind(config.model.kind).facts(config);
}

}  // namespace garonne::train
