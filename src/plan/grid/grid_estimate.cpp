#include "plan/grid/grid_estimate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/grid/block_passes.hpp"
#include "plan/grid/communicating.hpp"
#include "plan/grid/device_parameters.hpp"
#include "plan/grid/estimated_device.hpp"
#include "plan/grid/pipeline_hosts.hpp"
#include "plan/model/group_links.hpp"
#include "plan/pipeline/one_stage.hpp"
#include "plan/pipeline/schedule_makers.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/pipeline/simulation.hpp"
#include "plan/step/launches.hpp"
#include "plan/step/passes_in_turn.hpp"

namespace garonne::plan {
namespace {

// Kept schedules may have so many operations together; then they are made again.
constexpr std::size_t most_scheduled = 8'000'000;

// Of those of a data rank, what takes one of the ways through the model.
std::int64_t micro_batches_of(const GridCandidate& candidate, std::size_t routes,
                              std::size_t route) {
  if (routes == 1) return candidate.micro_batches;
  const int down =
      micro_batches_down(candidate.shape.pipeline, static_cast<int>(candidate.micro_batches));
  return route == 0 ? down : candidate.micro_batches - down;
}

bool gathers_after_update(const GridCandidate& candidate) {
  return candidate.zero == 1 || candidate.zero == 2;
}

}  // namespace

GridEstimator::GridEstimator(const Cluster& cluster, std::int64_t budget_bytes,
                             const StepShape& step, BlocksOf blocks)
    : cluster_(cluster), budget_bytes_(budget_bytes), step_(step), blocks_(std::move(blocks)) {}

GridEstimator::~GridEstimator() = default;

GridEstimator::Model& GridEstimator::model_of(const GridCandidate& candidate) {
  auto& model =
      models_[{candidate.shape.tensor, candidate.sequence_parallel, candidate.micro_batch}];
  if (!model) {
    Model made;
    made.blocks =
        blocks_(candidate.shape.tensor, candidate.sequence_parallel, candidate.micro_batch);
    model = std::make_unique<Model>(std::move(made));
  }
  return *model;
}

const GridEstimator::Shape& GridEstimator::shape_of(const GridCandidate& candidate) {
  const GridShape& sizes = candidate.shape;
  auto& shape = shapes_[{sizes.data, sizes.pipeline, sizes.tensor}];
  if (!shape) {
    const GridLinks links(cluster_, Grid(sizes));
    Shape made{links.data(), links.tensor(), links.world(), cluster_.inside_node};
    for (int stage = 0; stage + 1 < sizes.pipeline; ++stage) {
      const GroupLink hop = links.stages(stage, stage + 1);
      if (hop.between_nodes) made.hop = hop.link;
    }
    shape = std::make_unique<Shape>(made);
  }
  return *shape;
}

const PipelineSchedule& GridEstimator::schedule_of(const GridCandidate& candidate) {
  const auto key = std::make_tuple(candidate.schedule, candidate.shape.pipeline,
                                   candidate.micro_batches, candidate.chunks);
  const auto found = schedules_.find(key);
  if (found != schedules_.end()) return found->second;
  PipelineRequest request;
  request.stages = candidate.shape.pipeline;
  request.micro_batches = static_cast<int>(candidate.micro_batches);
  if (traits_of(candidate.schedule).chunks.size() > 1) request.chunks = candidate.chunks;
  PipelineSchedule schedule = make_pipeline_schedule(candidate.schedule, request);
  for (const auto& order : schedule.order) scheduled_ += order.size();
  if (scheduled_ > most_scheduled) {
    schedules_.clear();
    scheduled_ = 0;
  }
  return schedules_[key] = std::move(schedule);
}

std::vector<GridEstimator::Device> GridEstimator::devices_of(const GridCandidate& candidate,
                                                             Model& model) const {
  const int stages = candidate.shape.pipeline;
  std::vector<Device> devices(as_index(stages));
  const std::vector<int>& firsts = model.firsts_of(candidate.parts(), cluster_.software);
  const ChunkPlacement placement =
      stages == 1 ? ChunkPlacement::Looped : traits_of(candidate.schedule).placement;
  const auto routes = pipeline_routes(placement, stages, candidate.chunks);
  const auto& of_devices = model.parameters_of(routes, firsts, candidate.shape.tensor > 1);
  const StepShape step = step_of(step_, candidate);
  for (std::size_t r = 0; r < devices.size(); ++r) {
    devices[r].static_bytes = static_bytes(of_devices[r].completed, step);
    devices[r].tied = tied_parameters(of_devices[r]);
  }
  for (std::size_t way = 0; way < routes.size(); ++way) {
    const std::int64_t passing = micro_batches_of(candidate, routes.size(), way);
    add_route(candidate, model, routes[way], passing, of_devices, devices);
  }
  return devices;
}

void GridEstimator::add_route(const GridCandidate& candidate, Model& model,
                              const PipelineRoute& route, std::int64_t micro_batches,
                              const std::vector<DeviceParameters>& of_devices,
                              std::vector<Device>& devices) const {
  const std::vector<int>& firsts = model.firsts_of(candidate.parts(), cluster_.software);
  double forward = 0;
  double backward = 0;
  for (std::size_t part = 0; part < route.size(); ++part) {
    Device& device = devices[as_index(route[part].device)];
    const DeviceParameters& of_device = of_devices[as_index(route[part].device)];
    const bool is_first = device.chunks.empty();
    if (is_first || forward < device.before_forward) device.before_forward = forward;
    if (is_first || backward < device.before_backward) device.before_backward = backward;
    Device::Chunk chunk;
    chunk.first = firsts[part];
    chunk.last = firsts[part + 1];
    chunk.micro_batches = static_cast<double>(micro_batches);
    if (part + 1 < route.size()) chunk.sent_bytes = model.blocks[as_index(chunk.last)].input_bytes;
    for (int b = chunk.first; b < chunk.last; ++b) {
      const BlockCost& block = model.blocks[as_index(b)];
      const PassSeconds forward_of_block = forward_pass(block, step_.kernels);
      const PassSeconds backward_of_block = backward_pass(block, step_.kernels);
      chunk.forward += forward_of_block.device;
      chunk.backward += backward_of_block.device - block.weight_seconds;
      chunk.weight += block.weight_seconds;
      chunk.exchanging += block.forward_link_seconds + block.backward_link_seconds;
      chunk.issue.forward += forward_of_block.host;
      chunk.issue.backward += backward_of_block.host;
      const auto& trains = of_device.first_used[device.updates.size()];
      const double trained =
          static_cast<double>(trains.elements) / (candidate.zero > 0 ? candidate.shape.data : 1);
      const int launches = trains.launches(step_);
      device.updates.push_back(
          {std::max(trained * update_seconds_per_element(), launches * step_.kernels.least),
           launches * step_.kernels.issue});
      device.parameters += trains.parameters();
      device.launches += launches;
      device.elements += trains.elements;
      device.largest_block_elements = std::max(device.largest_block_elements, trains.elements);
      device.working_bytes = std::max(device.working_bytes, block.working_bytes);
    }
    forward += chunk.forward;
    backward += chunk.backward + chunk.weight;
    device.chunks.push_back(chunk);
  }
}

PassSeconds GridEstimator::squares(const GridCandidate& candidate, const Device& device) const {
  const auto mine = static_cast<double>(updated_elements(candidate, device));
  const double buckets = buckets_of(candidate, device);
  return {std::max(mine * step_.norm_seconds_per_element, buckets * step_.kernels.least),
          buckets * step_.kernels.issue};
}

double GridEstimator::ending_seconds(const GridCandidate& candidate, const Device& device) const {
  // A host that has waited for messages has nothing issued ahead.
  const bool waits = candidate.shape.pipeline > 1 && cluster_.software.host_waits;
  const auto taken = [&](const PassSeconds& pass) {
    return waits ? std::max(pass.device, pass.host) : pass.device;
  };
  double seconds = taken(squares(candidate, device));
  for (const PassSeconds& update : device.updates) seconds += taken(update);
  return seconds;
}

// Of the host for a whole step of a device, what runs again included.
double GridEstimator::issued_seconds(const GridCandidate& candidate, const Device& device,
                                     const Kept& kept) const {
  double again = 0;
  for (std::size_t c = 0; c < device.chunks.size(); ++c)
    again += device.chunks[c].micro_batches * kept.again[c].host;
  const double buckets = buckets_of(candidate, device);
  double launches = buckets + device.launches;
  if (candidate.shape.data > 1) {
    const bool all = candidate.zero == 0;
    launches +=
        buckets * launches_of_collective(all ? Operation::AllReduce : Operation::ReduceScatter,
                                         step_.gradient_wire.has_value());
  }
  return device.issue() + again + launches * step_.kernels.issue;
}

// A step of a device without others before or behind it, whose reductions take `exposed` seconds
// that no backward hides, but for what follows its updates.
double GridEstimator::seconds_alone(const GridCandidate& candidate, const Model& model,
                                    const Device& device, const Kept& kept, double exposed) const {
  std::vector<PassSeconds> passes;
  std::vector<PassSeconds> backward;
  const std::size_t first = as_index(device.chunks.front().first);
  for (std::size_t b = 0; b < kept.options.size(); ++b) {
    const BlockCost& block = model.blocks[first + b];
    passes.push_back(forward_pass(block, step_.kernels));
    backward.push_back(backward_pass(block, step_.kernels));
    backward.back().device += kept.options[b]->again_seconds;
    backward.back().host += kept.options[b]->again_issue_seconds;
  }
  passes.insert(passes.end(), backward.rbegin(), backward.rend());
  PassClock clock;
  clock.start_with(passes, candidate.micro_batches, cluster_.software.host_waits);
  clock.wait(exposed);
  clock.run(squares(candidate, device));
  // As gradients come about.
  for (auto update = device.updates.rbegin(); update != device.updates.rend(); ++update)
    clock.run(*update);
  return clock.now();
}

double GridEstimator::gather_seconds(const GridCandidate& candidate, const Device& device) {
  return collective_seconds("all-gather", device.elements * step_.element_bytes.parameter,
                            candidate.shape.data, shape_of(candidate).data);
}

std::int64_t GridEstimator::updated_elements(const GridCandidate& candidate, const Device& device) {
  return candidate.zero > 0 ? device.elements / candidate.shape.data : device.elements;
}

// Passes that overlap may hide what they exchange.
bool GridEstimator::hides_exchanges(const GridCandidate& candidate) const {
  return candidate.shape.pipeline > 1 && traits_of(candidate.schedule).overlaps &&
         why_in_turn(candidate.shape.tensor, candidate.shape.data, candidate.zero,
                     !cluster_.software.overlaps_collectives) == PassesInTurn::No;
}

// Until the last pass of a pipeline is through, where nothing runs again, messages take no time,
// and nothing but passes takes time of the devices.
double GridEstimator::least_seconds_of_passes(const GridCandidate& candidate,
                                              const std::vector<Device>& devices) {
  const bool hides = hides_exchanges(candidate);
  PipelineCosts costs;
  for (const Device& device : devices) {
    for (const Device::Chunk& chunk : device.chunks) {
      // Of either pass; how much of either is not known here.
      const double hidden = hides ? chunk.exchanging : 0;
      costs.chunks.push_back({std::max(0.0, chunk.forward - hidden),
                              std::max(0.0, chunk.backward - hidden), chunk.weight});
    }
  }
  return simulate_pipeline(schedule_of(candidate), costs).makespan;
}

// `passes_seconds`: a bound of all passes that is known; 0 = none.
GridBounds GridEstimator::bounds_of(const GridCandidate& candidate,
                                    const std::vector<Device>& devices, double passes_seconds) {
  const bool splits = candidate.shape.pipeline > 1 && traits_of(candidate.schedule).splits_backward;
  const bool hides = hides_exchanges(candidate);
  GridBounds bounds;
  double busy = passes_seconds;
  double after = 0;  // the sums of the step, when everybody is done
  double issued = 0;
  for (const Device& device : devices) {
    const double tail = splits ? 0 : device.before_backward;
    double seconds = device.before_forward + device.work() + tail;
    for (const Device::Chunk& chunk : device.chunks)
      seconds -= hides ? chunk.micro_batches * chunk.exchanging : 0;
    if (candidate.shape.data > 1 && device.chunks.size() == 1 && !splits) {
      // No gradient is whole before the last backward.
      const double before_last = device.before_forward + device.work() - device.chunks[0].backward -
                                 device.chunks[0].weight;
      const std::int64_t together = device.elements - device.tied.elements;
      seconds = std::max(seconds, before_last + reduction_seconds(candidate, together));
    }
    const auto stage = static_cast<int>(&device - devices.data());
    busy = std::max(busy, seconds + tied_seconds(candidate, device, stage, false));
    const auto mine = static_cast<double>(updated_elements(candidate, device));
    double updating = mine * update_seconds_per_element();
    if (gathers_after_update(candidate))
      updating = std::max(updating, gather_seconds(candidate, device));
    after = std::max(after, updating);
    const std::int64_t gradients =
        gradient_in_shards(candidate) ? device.elements / candidate.shape.data : device.elements;
    // Shards may have no part of some.
    const int launches = candidate.zero > 0 ? 0 : device.launches;
    issued = std::max(issued, device.issue() + launches * step_.kernels.issue);
    bounds.bytes =
        std::max(bounds.bytes, device.static_bytes + gradients * step_.element_bytes.gradient);
  }
  // Nothing is done before it is issued.
  bounds.seconds = std::max(busy + after, issued);
  return bounds;
}

GridBounds GridEstimator::bounds(const GridCandidate& candidate) {
  return bounds_of(candidate, devices_of(candidate, model_of(candidate)), 0);
}

GridEstimate GridEstimator::estimate(const GridCandidate& candidate) {
  Model& model = model_of(candidate);
  const Shape& shape = shape_of(candidate);
  const bool piped = candidate.shape.pipeline > 1;
  const PipelineSchedule alone =
      piped ? PipelineSchedule() : one_stage_schedule(static_cast<int>(candidate.micro_batches));
  const PipelineSchedule& schedule = piped ? schedule_of(candidate) : alone;
  GridEstimate estimate;
  estimate.fits = true;
  std::vector<double> exposed;  // by device: reductions that no backward hides
  double alone_seconds = 0;     // where nothing is piped
  double issued = 0;
  double after = 0;
  const std::vector<Device> devices = devices_of(candidate, model);
  const std::vector<Kept> kept = keep_within_budget(candidate, model, devices, schedule);
  Passes passes = passes_of(candidate, model, devices, kept);
  for (std::size_t r = 0; r < devices.size(); ++r) {
    const Device& device = devices[r];
    estimate.bytes = std::max(estimate.bytes, kept[r].peak_bytes);
    estimate.fits = estimate.fits && kept[r].peak_bytes <= budget_bytes_;
    issued = std::max(issued, issued_seconds(candidate, device, kept[r]));
    exposed.push_back(exposed_seconds(candidate, device, r > 0, passes.backward[r],
                                      budget_bytes_ - kept[r].peak_bytes));
    const double gathered = gathers_after_update(candidate) ? gather_seconds(candidate, device) : 0;
    after = std::max(after, ending_seconds(candidate, device) + gathered);
    if (!piped)
      alone_seconds = seconds_alone(candidate, model, device, kept[r], exposed.back()) + gathered;
  }
  double reduced = 0;
  if (!piped) {
    reduced =
        static_cast<double>(candidate.micro_batches) * passes.costs.chunks[0].sum() + exposed[0];
  } else {
    add_messages(candidate, model, devices, passes.costs);
    const PipelineOutcome outcome = simulate_pipeline(schedule, passes.costs);
    const auto ended = [&](std::size_t r) { return outcome.timeline[r].back().end + exposed[r]; };
    for (std::size_t r = 0; r < devices.size(); ++r) {
      const double tied =
          tied_seconds(candidate, devices[r], static_cast<int>(r), cluster_.software.host_waits);
      const double other = tied > 0 ? ended(as_index(devices[r].tied.device)) : 0;
      reduced = std::max(reduced, std::max(ended(r), other) + tied);
    }
  }
  const double sums = collective_seconds("all-reduce", 16, candidate.shape.ranks(), shape.world);
  const double least = piped ? least_seconds_of_passes(candidate, devices) : 0;
  estimate.least_seconds = bounds_of(candidate, devices, least).seconds;
  estimate.seconds =
      std::max({reduced + sums + after, alone_seconds + sums, issued, estimate.least_seconds});
  return estimate;
}

}  // namespace garonne::plan
