#include <filesystem>
#include <system_error>

#include "dist/fact_agreement.hpp"
#include "train/setup/size_check.hpp"
#include "train/workload/field_workload.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::train {
namespace {

// How many points and channels there are the files alone say.
class FieldsKind final : public WorkloadKind {
 public:
  std::string name() const override { return "fields"; }

  std::unique_ptr<Workload> open(const RunConfig& config,
                                 const std::string& validation_key) const override {
    return std::make_unique<FieldWorkload>(config, validation_key);
  }

  DataFacts facts(const RunConfig& config) const override { return FieldWorkload(config).facts(); }

  DataFacts facts_of_checkpoint(const RunConfig& config, const Manifest& manifest,
                                const std::string& checkpoint) const override {
    const FieldWorkload workload(config, "data.validation", manifest.data);
    workload.expect_like(manifest.data, checkpoint, config.data.path);
    return workload.facts();
  }

  std::optional<DataFacts> facts_of_run(const RunConfig& config,
                                        const std::string&) const override {
    std::error_code error;
    if (!std::filesystem::exists(config.data.path, error)) return std::nullopt;
    return facts(config);
  }

  DataFacts made_up_facts(const RunConfig& config, dist::Session& session) const override {
    std::unique_ptr<Workload> workload;
    session.agree([&] { workload = std::make_unique<FieldWorkload>(config); });
    dist::agree_on(session, [&] { return workload->contents(); });
    return workload->facts();
  }

  void check_sizes(const RunConfig& config, const DataFacts& facts) const override {
    check_field_sizes(config, facts);
  }

  std::int64_t tokens_per_sample(const RunConfig&) const override { return 0; }
};

}  // namespace

const WorkloadKind& fields_kind() {
  static const FieldsKind kind;
  return kind;
}

}  // namespace garonne::train
