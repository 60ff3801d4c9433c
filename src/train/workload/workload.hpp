// What a run learns from: what its model has to know of the data, and micro-batches of samples.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/contains.hpp"
#include "data/reader.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "dist/fact_agreement.hpp"
#include "nn/fields/field_rows.hpp"
#include "train/workload/batch_stream.hpp"
#include "train/workload/data_facts.hpp"

namespace garonne::train {

enum class Part { Training, Validation };

// What of which samples a stream serves, and in which order.
struct StreamOrder {
  // Sample numbers of the micro-batch with this ordinal; called on the reader's thread.
  std::function<std::vector<std::int64_t>(std::int64_t ordinal)> samples_of;
  std::int64_t first_ordinal = 0;
  std::int64_t end_ordinal = 0;    // the first not wanted
  std::vector<int> micro_batches;  // of a step: as BatchStream's
  nn::FieldRows rows;              // of fields: those that are served, zeros in slots without one
  // Names in the model of what is wanted of the samples; the rest is not read.
  std::vector<std::string> values;

  bool wants(const std::string& value) const { return contains(values, value); }
};

// A file, or files, that a validation takes samples from.
struct ValidationSource {
  std::string path;
  std::string part = {};          // of a tokens file: its dataset; else empty
  double weight = 1;              // in the mean over all sources
  std::int64_t first_sample = 0;  // of those of Part::Validation
  std::int64_t samples = 0;       // different ones, from there on
};

class Workload {
 public:
  virtual ~Workload() = default;

  virtual const DataFacts& facts() const = 0;
  // One line for people.
  virtual std::string summary() const = 0;
  // What a user should know of the data, a sentence each. May read files; throws IoError.
  virtual std::vector<std::string> notes() const { return {}; }
  // What text became tokens by; null where samples are no text. Reads files; throws IoError.
  virtual std::unique_ptr<data::Tokenizer> tokenizer() const { return nullptr; }
  // For the manifest of a checkpoint.
  virtual nlohmann::json manifest() const = 0;
  // In what the fields that a checkpoint was trained on are others than these, as a sentence
  // without its subject; empty where in nothing that is known. `data` is what its manifest says of
  // them. Tokens are told apart by their tokenizer.
  virtual std::string difference_from(const nlohmann::json& data,
                                      const std::string& checkpoint) const {
    (void)data;
    (void)checkpoint;
    return {};
  }
  // Throws ConfigError (data.path, which is `path`) where there is one.
  void expect_like(const nlohmann::json& data, const std::string& checkpoint,
                   const std::string& path) const;
  // What copies of these data have in common, for ranks to compare (data/file_identity.hpp). Reads
  // files; throws IoError.
  virtual dist::Facts contents() const = 0;
  virtual std::int64_t samples(Part part) const = 0;
  // Empty where there is nothing to validate on.
  virtual std::vector<ValidationSource> validation_sources() const = 0;
  // Consecutive samples that are read together (data/sample_order.hpp).
  virtual std::int64_t shuffle_block() const = 0;
  // What speed is counted in, one of those of metrics_file.hpp: so many of it a sample.
  virtual std::string item() const = 0;
  virtual std::int64_t items_per_sample() const = 0;
  // Of the loss; empty where it has none.
  virtual std::string loss_unit() const = 0;
  virtual std::unique_ptr<BatchStream> open(std::shared_ptr<data::Reader> reader, Part part,
                                            StreamOrder order) const = 0;
};

// Hashes of Workload::contents() by the key that names the files, for the manifest of a checkpoint:
// equal hashes, equal data wherever they lie.
nlohmann::json hashes_by_key(const dist::Facts& contents);

// What to warn of where a model is used with other statistics than it was trained with:
// `trained_on` is what its manifest says of the data. Empty where they are the same, or nobody
// knows.
std::string other_statistics_warning(const Workload& workload, const nlohmann::json& trained_on,
                                     const std::string& path);

// The data of a run file, by the kind of its model. Throws ConfigError where data.path is missing
// or does not go with the model, IoError where the data cannot be read. `validation_key` names what
// the user gave data.validation by.
std::unique_ptr<Workload> open_workload(const RunConfig& config,
                                        const std::string& validation_key = "data.validation");

// Of what is in data.path; without data where the run file alone says enough.
DataFacts facts_of(const RunConfig& config);

}  // namespace garonne::train
