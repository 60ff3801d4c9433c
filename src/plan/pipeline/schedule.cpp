#include "plan/pipeline/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace garonne::plan {

std::string_view to_string(PipelineWork work) {
  switch (work) {
    case PipelineWork::Forward:
      return "forward";
    case PipelineWork::Backward:
      return "backward";
    case PipelineWork::BackwardInput:
      return "backward-input";
    case PipelineWork::BackwardWeight:
      return "backward-weight";
    case PipelineWork::Recompute:
      return "recompute";
  }
  throw InternalError("no such pipeline work");
}

std::string_view to_string(ChunkPlacement placement) {
  switch (placement) {
    case ChunkPlacement::Looped:
      return "looped";
    case ChunkPlacement::V:
      return "v";
    case ChunkPlacement::Bidirectional:
      return "bidirectional";
  }
  throw InternalError("no such chunk placement");
}

std::string describe(const PipelineOperation& operation) {
  return fmt::format("{} of chunk {}, micro-batch {}", to_string(operation.work), operation.chunk,
                     operation.micro_batch);
}

bool PipelineSchedule::recomputes(ChunkPlace place) const {
  return std::find(recomputed.begin(), recomputed.end(), place) != recomputed.end();
}

bool PipelineSchedule::has_overlaps() const {
  return std::any_of(order.begin(), order.end(), [](const auto& list) {
    return std::any_of(list.begin(), list.end(),
                       [](const auto& operation) { return operation.overlaps_next; });
  });
}

std::vector<PipelineRoute> pipeline_routes(ChunkPlacement placement, int devices, int chunks) {
  PipelineRoute down;
  PipelineRoute up;
  for (int r = 0; r < devices; ++r) {
    down.push_back({r, 0});
    up.push_back({devices - 1 - r, 1});
  }
  switch (placement) {
    case ChunkPlacement::Looped: {
      PipelineRoute route;
      for (int c = 0; c < chunks; ++c) {
        for (int r = 0; r < devices; ++r) route.push_back({r, c});
      }
      return {route};
    }
    case ChunkPlacement::V:
      down.insert(down.end(), up.begin(), up.end());
      return {down};
    case ChunkPlacement::Bidirectional:
      return {down, up};
  }
  throw InternalError("no such chunk placement");
}

PipelineNeighbours::PipelineNeighbours(const PipelineSchedule& schedule)
    : chunks_(schedule.chunks) {
  const auto places =
      static_cast<std::size_t>(schedule.devices) * static_cast<std::size_t>(schedule.chunks);
  before_.assign(places, none);
  after_.assign(places, none);
  for (const PipelineRoute& route :
       pipeline_routes(schedule.placement, schedule.devices, schedule.chunks)) {
    for (std::size_t i = 1; i < route.size(); ++i) {
      before_[index(route[i])] = route[i - 1];
      after_[index(route[i - 1])] = route[i];
    }
  }
}

const ChunkPlace* PipelineNeighbours::source(int device, const PipelineOperation& operation) const {
  const ChunkPlace place{device, operation.chunk};
  if (operation.work == PipelineWork::Forward) return before(place);
  return gives_input_gradient(operation.work) ? after(place) : nullptr;
}

}  // namespace garonne::plan
