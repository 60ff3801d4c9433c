#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/error.hpp"
#include "data/sample_order.hpp"
#include "data/tokens/token_samples.hpp"
#include "train/setup/size_check.hpp"
#include "train/workload/text_workload.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t byte_vocabulary = 256;

bool data_are_there(const RunConfig& config) {
  std::error_code error;
  for (const data::WeightedPath& file : data::parse_blend("data.path", config.data.path)) {
    // Megatron's files may be named without their endings.
    if (!fs::exists(file.path, error) && !fs::exists(file.path + ".idx", error)) return false;
  }
  return true;
}

class TextKind final : public WorkloadKind {
 public:
  std::string name() const override { return "text"; }

  std::unique_ptr<Workload> open(const RunConfig& config,
                                 const std::string& validation_key) const override {
    return std::make_unique<TextWorkload>(config, validation_key);
  }

  DataFacts facts(const RunConfig& config) const override {
    DataFacts facts;
    facts.vocabulary = config.model.vocabulary;
    if (facts.vocabulary > 0 && !data_are_there(config)) return facts;
    if (config.data.path.empty()) {
      throw ConfigError("model.vocabulary", "",
                        "is needed where data.path names no file that says it");
    }
    const data::TokenSamples training = training_samples(config);
    facts.vocabulary = training.vocabulary();
    facts.tokenizer = training.tokenizer();
    facts.validation_samples = validation_samples(config, training, "data.validation").samples();
    return facts;
  }

  DataFacts facts_of_checkpoint(const RunConfig& config, const Manifest& manifest,
                                const std::string& checkpoint) const override {
    DataFacts facts;
    facts.vocabulary = vocabulary_of(manifest, checkpoint);
    if (facts.vocabulary == 0 && config.model.vocabulary == 0)
      throw IoError(checkpoint + "/manifest.json", "does not say the vocabulary of the data");
    const auto tokenizer = manifest.data.find("tokenizer");
    facts.tokenizer = tokenizer != manifest.data.end() && tokenizer->is_string()
                          ? tokenizer->get<std::string>()
                          : "byte";
    if (manifest.data.is_object()) {
      const std::string place = checkpoint + "/manifest.json: data";
      const JsonFile file(manifest.data, place, FileOwner::Run);
      facts.marks =
          marks_from_json(file.root(), std::max(facts.vocabulary, config.model.vocabulary));
    }
    return facts;
  }

  // The configuration does not say it where it is the data's; then the checkpoint knows, or the
  // data.
  std::optional<DataFacts> facts_of_run(const RunConfig& config,
                                        const std::string& run_directory) const override {
    if (config.model.vocabulary > 0) return facts(config);
    const auto steps = list_checkpoints(run_directory);
    if (!steps.empty()) {
      const std::string checkpoint = checkpoint_path(run_directory, steps.back());
      return facts_of_checkpoint(config, read_manifest(checkpoint), checkpoint);
    }
    if (data_are_there(config)) return facts(config);
    return std::nullopt;
  }

  DataFacts made_up_facts(const RunConfig& config, dist::Session&) const override {
    DataFacts facts;
    facts.vocabulary = config.model.vocabulary > 0 ? config.model.vocabulary : byte_vocabulary;
    return facts;
  }

  void check_sizes(const RunConfig& config, const DataFacts& facts) const override {
    check_text_sizes(config, facts);
  }

  std::int64_t tokens_per_sample(const RunConfig& config) const override {
    return config.model.sequence;
  }
};

}  // namespace

const WorkloadKind& text_kind() {
  static const TextKind kind;
  return kind;
}

}  // namespace garonne::train
