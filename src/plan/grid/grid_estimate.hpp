// What a candidate grid costs, by blocks: bounds that hold whatever a planner does, and estimates.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "plan/grid/block_passes.hpp"
#include "plan/grid/block_table.hpp"
#include "plan/grid/device_parameters.hpp"
#include "plan/grid/grid_candidate.hpp"
#include "plan/model/group_links.hpp"
#include "plan/pipeline/schedule.hpp"
#include "plan/pipeline/simulation.hpp"
#include "plan/step/generator.hpp"

namespace garonne::plan {

// The costs of a model's blocks on one of so many tensor ranks, in seconds of the cluster's
// devices. Throws ConfigError where the model cannot be cut like that.
using BlocksOf = std::function<std::vector<BlockCost>(int tensor, bool sequence_parallel,
                                                      std::int64_t micro_batch)>;

struct GridBounds {
  double seconds = 0;      // no Program of the candidate is done earlier
  std::int64_t bytes = 0;  // some rank holds at least so many at once
};

struct GridEstimate {
  double seconds = 0;
  double least_seconds = 0;  // a bound that knows the schedule, no lower than GridBounds::seconds
  std::int64_t bytes = 0;    // of the rank that holds most
  bool fits = false;         // bytes within the budget, rerunning what it takes
};

class GridEstimator {
 public:
  // `step`: bytes of elements, optimizer states, seconds of norm and update; groups, links and
  // micro-batches are the candidates'.
  GridEstimator(const Cluster& cluster, std::int64_t budget_bytes, const StepShape& step,
                BlocksOf blocks);
  ~GridEstimator();
  GridEstimator(const GridEstimator&) = delete;
  GridEstimator& operator=(const GridEstimator&) = delete;

  // Both throw ConfigError where the model or the schedule cannot be had.
  GridBounds bounds(const GridCandidate& candidate);
  GridEstimate estimate(const GridCandidate& candidate);
  // What the passes of its pipeline take by that estimate, of more than one stage: what runs again
  // to fit, collectives, and what gathers and the host take included. Throws as they do.
  PipelineCosts pipeline_costs(const GridCandidate& candidate);

 private:
  struct Model;   // blocks, and where parts begin
  struct Shape;   // links of a grid
  struct Device;  // of a pipeline, with its chunks
  struct Kept;
  struct Passes;  // of all devices

  Model& model_of(const GridCandidate& candidate);
  const Shape& shape_of(const GridCandidate& candidate);
  const PipelineSchedule& schedule_of(const GridCandidate& candidate);
  std::vector<Device> devices_of(const GridCandidate& candidate, Model& model) const;
  void add_route(const GridCandidate& candidate, Model& model, const PipelineRoute& route,
                 std::int64_t micro_batches, const std::vector<DeviceParameters>& of_devices,
                 std::vector<Device>& devices) const;
  double hop_seconds(const GridCandidate& candidate, const BlockCost& block,
                     const Shape& shape) const;
  double issued_seconds(const GridCandidate& candidate, const Device& device,
                        const Kept& kept) const;
  double seconds_alone(const GridCandidate& candidate, const Model& model, const Device& device,
                       const Kept& kept, double exposed) const;
  PassSeconds squares(const GridCandidate& candidate, const Device& device) const;
  double ending_seconds(const GridCandidate& candidate, const Device& device) const;
  double reduction_seconds(const GridCandidate& candidate, std::int64_t elements);
  std::int64_t bucket_bytes(const GridCandidate& candidate, const Device& device) const;
  double buckets_together(const GridCandidate& candidate, const Device& device) const;
  double buckets_of(const GridCandidate& candidate, const Device& device) const;
  std::int64_t held_bytes(const GridCandidate& candidate, const Device& device) const;
  double gather_seconds(const GridCandidate& candidate, const Device& device);
  // With what is summed of whole parameters before.
  double update_seconds_per_element() const {
    return step_.update_seconds_per_element + step_.sums_seconds_per_element;
  }
  static std::int64_t updated_elements(const GridCandidate& candidate, const Device& device);
  bool hides_exchanges(const GridCandidate& candidate) const;
  GridBounds bounds_of(const GridCandidate& candidate, const std::vector<Device>& devices,
                       double passes_seconds);
  double least_seconds_of_passes(const GridCandidate& candidate,
                                 const std::vector<Device>& devices);
  std::vector<Kept> keep_within_budget(const GridCandidate& candidate, const Model& model,
                                       const std::vector<Device>& devices,
                                       const PipelineSchedule& schedule) const;
  Passes passes_of(const GridCandidate& candidate, Model& model, const std::vector<Device>& devices,
                   const std::vector<Kept>& kept);
  void add_messages(const GridCandidate& candidate, Model& model,
                    const std::vector<Device>& devices, PipelineCosts& costs);
  Kept keep_within_budget(const Model& model, const Device& device,
                          const std::vector<PipelineOperation>& order,
                          std::int64_t held_bytes) const;
  double exposed_seconds(const GridCandidate& candidate, const Device& device, bool sends,
                         double backward_seconds, std::int64_t free_bytes);

  double tied_seconds(const GridCandidate& candidate, const Device& device, int stage,
                      bool host_waits);

  Cluster cluster_;
  std::int64_t budget_bytes_;
  StepShape step_;
  BlocksOf blocks_;
  std::map<std::tuple<int, bool, std::int64_t>, std::unique_ptr<Model>> models_;
  std::map<std::tuple<int, int, int>, std::unique_ptr<Shape>> shapes_;
  std::map<std::tuple<int, int, int, int, int>, GroupLink> tied_links_;
  std::map<std::tuple<std::string, int, std::int64_t, int>, PipelineSchedule> schedules_;
  std::size_t scheduled_ = 0;  // operations in schedules_
};

}  // namespace garonne::plan
