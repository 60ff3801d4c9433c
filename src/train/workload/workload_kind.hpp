// What models learn from, tokens or fields: all that is asked about it before there is a Workload,
// or without one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/config.hpp"
#include "dist/session.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/workload/data_facts.hpp"
#include "train/workload/workload.hpp"

namespace garonne::train {

class WorkloadKind {
 public:
  virtual ~WorkloadKind() = default;

  virtual std::string name() const = 0;  // for people: a model of …

  // Errors are those of open_workload.
  virtual std::unique_ptr<Workload> open(const RunConfig& config,
                                         const std::string& validation_key) const = 0;
  // Of what is in data.path; without data where the run file alone says enough.
  virtual DataFacts facts(const RunConfig& config) const = 0;
  // Of a run with this checkpoint. Throws IoError where neither it nor the data say them.
  virtual DataFacts facts_of_checkpoint(const RunConfig& config, const Manifest& manifest,
                                        const std::string& checkpoint) const = 0;
  // Of a run that may have no checkpoint; nothing where its data are gone. Throws IoError.
  virtual std::optional<DataFacts> facts_of_run(const RunConfig& config,
                                                const std::string& run_directory) const = 0;
  // For measuring, without data where they can be made up. Collective.
  virtual DataFacts made_up_facts(const RunConfig& config, dist::Session& session) const = 0;

  // As in train/setup/size_check.hpp.
  virtual void check_sizes(const RunConfig& config, const DataFacts& facts) const = 0;
  // Tokens of a sample, where model.sequence is a size of it; 0 where samples are frames.
  virtual std::int64_t tokens_per_sample(const RunConfig& config) const = 0;
};

const WorkloadKind& text_kind();
const WorkloadKind& fields_kind();

// By the kind of the model. Throws ConfigError (model.kind).
const WorkloadKind& workload_kind(const std::string& model_kind);

// Throws ConfigError (`option`, `value`): it is for models of `wanted` only, and the run's is none.
void expect_model_of(const WorkloadKind& wanted, const std::string& model_kind,
                     const std::string& option, const std::string& value);

}  // namespace garonne::train
