// Windows of a tokens file (data/tokens/token_stream.hpp).
#pragma once

#include "data/tokens/token_file.hpp"
#include "train/run/metrics_file.hpp"
#include "train/workload/workload.hpp"

namespace garonne::train {

class TextWorkload final : public Workload {
 public:
  // Throws ConfigError where a window of model.sequence is longer than the data.
  explicit TextWorkload(const RunConfig& config);

  const DataFacts& facts() const override { return facts_; }
  std::string summary() const override;
  nlohmann::json manifest() const override;
  dist::Facts contents() const override;
  std::int64_t samples(Part part) const override;
  std::int64_t shuffle_block() const override;
  std::string item() const override { return token_item; }
  std::int64_t items_per_sample() const override { return sequence_; }
  std::string loss_unit() const override { return "nats"; }
  std::unique_ptr<BatchStream> open(std::shared_ptr<data::Reader> reader, Part part,
                                    StreamOrder order) const override;

 private:
  std::string path_;
  std::int64_t sequence_;
  data::TokenFileInfo file_;
  DataFacts facts_;
};

}  // namespace garonne::train
