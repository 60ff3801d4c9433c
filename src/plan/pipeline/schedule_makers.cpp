#include "plan/pipeline/schedule_makers.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace garonne::plan {
namespace {

int needed(const std::optional<int>& given, const char* key, int most) {
  if (!given) throw ConfigError(key, "", "is needed for this schedule");
  if (*given < 1 || *given > most) {
    throw ConfigError(key, fmt::format("{}", *given), fmt::format("is not from 1 to {}", most));
  }
  return *given;
}

}  // namespace

PipelineSchedule empty_schedule_of_chunks(const PipelineRequest& request, const char* name,
                                          int chunks, ChunkPlacement placement) {
  PipelineSchedule schedule;
  schedule.name = name;
  schedule.devices = needed(request.stages, "--stages", most_pipeline_devices);
  schedule.micro_batches =
      needed(request.micro_batches, "--micro-batches", most_pipeline_micro_batches);
  schedule.chunks = needed(chunks, "--chunks", most_pipeline_chunks);
  schedule.placement = placement;
  schedule.order.resize(static_cast<std::size_t>(schedule.devices));
  const std::int64_t passes =
      std::int64_t{schedule.devices} * schedule.micro_batches * schedule.chunks;
  if (passes > most_pipeline_passes) {
    const std::int64_t fits =
        most_pipeline_passes / (std::int64_t{schedule.devices} * std::int64_t{schedule.chunks});
    throw ConfigError("--micro-batches", fmt::format("{}", schedule.micro_batches),
                      fmt::format("stages × chunks × micro-batches = {} is more than {}; the most "
                                  "for {} stages is {}",
                                  passes, most_pipeline_passes, schedule.devices, fits));
  }
  return schedule;
}

PipelineSchedule empty_schedule(const PipelineRequest& request, const char* name, int chunks,
                                ChunkPlacement placement) {
  if (request.chunks && *request.chunks != chunks) {
    throw ConfigError("--chunks", fmt::format("{}", *request.chunks),
                      fmt::format("{} has {} a device and no other number", name, chunks));
  }
  if (request.group_size) {
    throw ConfigError("--group-size", fmt::format("{}", *request.group_size),
                      fmt::format("{} has no groups; interleaved has", name));
  }
  return empty_schedule_of_chunks(request, name, chunks, placement);
}

void DeviceOrder::backward_input(int chunk) {
  const int micro_batch = of(chunk).backwards++;
  add(PipelineWork::BackwardInput, chunk, micro_batch);
  pending_.push_back({PipelineWork::BackwardWeight, chunk, micro_batch, false});
}

void DeviceOrder::backward_weight() {
  expect(!pending_.empty(), "a gradient of weights is pending");
  order_.push_back(pending_.front());
  pending_.pop_front();
}

void DeviceOrder::backward_weight(int chunk) {
  const auto found =
      std::find_if(pending_.begin(), pending_.end(),
                   [chunk](const PipelineOperation& waiting) { return waiting.chunk == chunk; });
  expect(found != pending_.end(), "a gradient of the chunk's weights is pending");
  order_.push_back(*found);
  pending_.erase(found);
}

bool DeviceOrder::weights_pending(int chunk) const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [chunk](const PipelineOperation& waiting) { return waiting.chunk == chunk; });
}

void DeviceOrder::overlapped(int forward_chunk, int backward_chunk) {
  forward(forward_chunk);
  order_.back().overlaps_next = true;
  backward(backward_chunk);
}

void keep_first_micro_batches(PipelineSchedule& schedule, int micro_batches) {
  for (auto& list : schedule.order) {
    std::vector<PipelineOperation> kept;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].micro_batch >= micro_batches) continue;
      kept.push_back(list[i]);
      if (kept.back().overlaps_next && list[i + 1].micro_batch >= micro_batches)
        kept.back().overlaps_next = false;
    }
    list = std::move(kept);
  }
  schedule.micro_batches = micro_batches;
}

}  // namespace garonne::plan
