#include "plan/grid/grid_candidate.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "plan/model/group_links.hpp"
#include "plan/pipeline/schedule_registry.hpp"

namespace garonne::plan {
namespace {

constexpr std::int64_t largest_bucket_bytes = std::int64_t{256} << 20;

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= number; ++d) {
    if (number % d == 0) found.push_back(d);
  }
  return found;
}

// So large that latencies take no more than a third of a reduction; a power of two.
std::int64_t good_bucket(const GridLimits& limits, const GridShape& shape, const Cluster& cluster) {
  const bool leaves = shape.data * shape.tensor > cluster.devices_per_node;
  const Link& link = leaves ? cluster.between_nodes : cluster.inside_node;
  const double wanted = 2 * shape.data * link.latency_seconds * link.bytes_per_second;
  std::int64_t bytes = std::max<std::int64_t>(limits.least_bucket_bytes, 1);
  while (static_cast<double>(bytes) < wanted && bytes < largest_bucket_bytes) bytes *= 2;
  return bytes;
}

template <typename Value>
bool agrees(const std::optional<Value>& pin, const Value& value) {
  return !pin || *pin == value;
}

bool agrees(const GridPins& pins, const GridCandidate& candidate) {
  const auto& [data, pipeline, tensor] = candidate.shape;
  return agrees(pins.data, data) && agrees(pins.pipeline, pipeline) &&
         agrees(pins.tensor, tensor) && agrees(pins.zero, candidate.zero) &&
         agrees(pins.sequence_parallel, candidate.sequence_parallel) &&
         agrees(pins.micro_batch, candidate.micro_batch) &&
         (pipeline == 1 || agrees(pins.schedule, candidate.schedule)) &&
         (!pins.chunks || (pipeline > 1 && traits_of(candidate.schedule).chunks.size() > 1));
}

// Chunks of a stage that are worth a try, or the one number that was chosen.
std::vector<int> chunks_of(const ScheduleTraits& traits, const GridPins& pins) {
  if (!pins.chunks || traits.chunks.size() < 2) return traits.chunks;
  return {*pins.chunks};
}

}  // namespace

bool same_layout(const GridCandidate& a, const GridCandidate& b) {
  GridCandidate as_b = a;
  as_b.zero = b.zero;
  as_b.bucket_bytes = b.bucket_bytes;
  return as_b == b;
}

bool same_but_for_schedule(const GridCandidate& a, const GridCandidate& b) {
  GridCandidate as_b = a;
  as_b.schedule = b.schedule;
  as_b.chunks = b.chunks;
  return same_layout(as_b, b);
}

std::string to_string(const GridCandidate& candidate) {
  std::string text = to_string(candidate.shape);
  if (candidate.sequence_parallel) text += " (sequence parallel)";
  if (candidate.shape.pipeline > 1) text += ", " + candidate.schedule;
  if (candidate.chunks > 1) text += fmt::format(" with {} chunks", candidate.chunks);
  if (candidate.shape.data > 1) text += fmt::format(", ZeRO {}", candidate.zero);
  return text + fmt::format(", {} of {}", counted(candidate.micro_batches, "micro-batch"),
                            candidate.micro_batch);
}

const std::vector<ScheduleTraits>& schedule_traits() {
  static const std::vector<ScheduleTraits> all = [] {
    std::vector<ScheduleTraits> found;
    for (const auto& kind : pipeline_schedule_kinds()) {
      if (kind.name == "file") continue;
      PipelineRequest request;
      request.stages = 2;
      request.micro_batches = 8;
      const PipelineSchedule schedule = make_pipeline_schedule(std::string(kind.name), request);
      if (!schedule.recomputed.empty()) continue;
      ScheduleTraits traits{std::string(kind.name), {schedule.chunks_passed()}, schedule.placement};
      traits.overlaps = schedule.has_overlaps();
      for (const auto& operation : schedule.order.front())
        traits.splits_backward |= operation.work == PipelineWork::BackwardWeight;
      try {
        request.chunks = 4;
        make_pipeline_schedule(std::string(kind.name), request);
        traits.chunks = {2, 4};
      } catch (const ConfigError&) {
        // Its chunks are its own.
      }
      found.push_back(std::move(traits));
    }
    return found;
  }();
  return all;
}

const ScheduleTraits& traits_of(const std::string& schedule) {
  for (const auto& traits : schedule_traits()) {
    if (traits.name == schedule) return traits;
  }
  throw InternalError("no traits of schedule " + schedule);
}

std::vector<GridCandidate> grid_candidates(const GridLimits& limits, const Cluster& cluster) {
  std::vector<GridCandidate> candidates;
  const auto add_stages_of_zero = [&](GridCandidate candidate) {
    for (int zero = 0; zero <= (candidate.shape.data > 1 ? 3 : 0); ++zero) {
      candidate.zero = zero;
      if (agrees(limits.pins, candidate)) candidates.push_back(candidate);
    }
  };
  const auto add_schedules = [&](GridCandidate candidate) {
    if (candidate.shape.pipeline == 1) return add_stages_of_zero(candidate);
    for (const auto& traits : schedule_traits()) {
      for (const int chunks : chunks_of(traits, limits.pins)) {
        candidate.schedule = traits.name;
        candidate.chunks = chunks;
        const std::int64_t passes = candidate.parts() * candidate.micro_batches;
        if (candidate.parts() <= limits.blocks && passes <= most_pipeline_passes &&
            candidate.micro_batches <= most_pipeline_micro_batches)
          add_stages_of_zero(candidate);
      }
    }
  };
  for (const std::int64_t tensor : divisors(limits.ranks)) {
    if (tensor > std::max(limits.most_tensor, limits.pins.tensor.value_or(0))) break;
    for (const std::int64_t pipeline : divisors(limits.ranks / tensor)) {
      if (pipeline > limits.blocks) break;
      const std::int64_t data = limits.ranks / tensor / pipeline;
      if (limits.global_batch % data != 0) continue;
      for (const std::int64_t micro_batch : divisors(limits.global_batch / data)) {
        GridCandidate candidate;
        candidate.shape = {static_cast<int>(data), static_cast<int>(pipeline),
                           static_cast<int>(tensor)};
        candidate.micro_batch = micro_batch;
        candidate.micro_batches = limits.global_batch / data / micro_batch;
        candidate.bucket_bytes =
            limits.pins.bucket_bytes.value_or(good_bucket(limits, candidate.shape, cluster));
        add_schedules(candidate);
        if (tensor == 1) continue;
        candidate.sequence_parallel = true;
        add_schedules(candidate);
      }
    }
  }
  return candidates;
}

}  // namespace garonne::plan
