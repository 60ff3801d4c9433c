// Samples of a dataset of fields (data/fields/field_dataset.hpp): states and what follows them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>

#include "data/fields/field_dataset.hpp"
#include "data/fields/field_step.hpp"
#include "data/statistics/field_statistics.hpp"
#include "train/run/metrics_file.hpp"
#include "train/workload/workload.hpp"

namespace garonne::train {

// What a run file asks of its data. Throws ConfigError for periods that are none.
data::FieldQuery field_query(const RunConfig& config, Part part);
// Whether a run file names data for validation: other files, or other dates.
bool has_validation(const RunConfig& config);

// What a model needs to know of such data. Throws ConfigError: train.decode where they are not
// normalised, train.loss = area-l2 for rows of a sphere whose latitudes nobody tells.
nn::FieldShape field_shape(const RunConfig& config, const data::FieldDatasetInfo& info,
                           const data::FieldStatistics& statistics);

// The step in time of what was trained on, as `data` of a manifest (docs/formats.md) says it; not
// known from manifests of before, and from a null. IoError: it is said wrongly.
data::FieldStep step_in_manifest(const nlohmann::json& data, const std::string& where);

class FieldWorkload final : public Workload {
 public:
  // Reads headers and statistics. Throws ConfigError where the statistics that data.normalisation
  // wants are not there, with the command that makes them, or where the validation data are of
  // another shape, grid, units or step (`validation_key`), or the statistics are; IoError as
  // FieldDataset::open.
  // Of data or statistics that are no longer at their paths, `saved`, what the manifest of a
  // checkpoint says of them, is taken, as far as it says it: samples to train on are then not
  // there.
  explicit FieldWorkload(const RunConfig& config,
                         const std::string& validation_key = "data.validation",
                         const nlohmann::json& saved = {});

  const DataFacts& facts() const override { return facts_; }
  std::string summary() const override;
  std::vector<std::string> notes() const override;
  // Where samples of the validation are trained on; empty where none is known to be. IoError.
  std::string overlap_note() const;
  nlohmann::json manifest() const override;
  std::string difference_from(const nlohmann::json& data,
                              const std::string& checkpoint) const override;
  dist::Facts contents() const override;
  std::int64_t samples(Part part) const override;
  std::vector<ValidationSource> validation_sources() const override;
  // Every sample may follow every other: a frame is far larger than what a disk reads at once.
  std::int64_t shuffle_block() const override { return 1; }
  std::string item() const override { return sample_item; }
  std::int64_t items_per_sample() const override { return 1; }
  std::string loss_unit() const override { return loss_; }
  std::unique_ptr<BatchStream> open(std::shared_ptr<data::Reader> reader, Part part,
                                    StreamOrder order) const override;

  const data::FieldDatasetInfo& info() const { return info_; }
  const data::FieldStatistics& statistics() const { return statistics_; }
  // Of the numbers that are used; the same ones may come from files of several kinds.
  std::string statistics_hash() const;

 private:
  // Described once, and read by the streams.
  std::optional<data::FieldDataset> training_;
  data::FieldDatasetInfo info_;
  std::optional<data::FieldDataset> validation_;
  data::FieldStatistics statistics_;
  std::string loss_;
  DataFacts facts_;
};

}  // namespace garonne::train
