// The ways to lay a run out over a number of ranks.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/grid.hpp"
#include "plan/model/cluster.hpp"
#include "plan/pipeline/schedule.hpp"

namespace garonne::plan {

struct GridCandidate {
  GridShape shape;
  bool sequence_parallel = false;
  std::string schedule = "1f1b";  // without meaning on one stage
  int chunks = 1;                 // of a stage that a micro-batch passes
  int zero = 0;
  std::int64_t micro_batch = 1;    // samples
  std::int64_t micro_batches = 1;  // of a data rank
  std::int64_t bucket_bytes = 0;   // of gradients that are reduced together

  int parts() const { return shape.pipeline * chunks; }
  bool operator==(const GridCandidate&) const = default;
};
// Whether they differ in nothing but the ZeRO stage and the bucket.
bool same_layout(const GridCandidate& a, const GridCandidate& b);
// Whether they differ in nothing but that and the pipeline schedule.
bool same_but_for_schedule(const GridCandidate& a, const GridCandidate& b);
// "data 4 × pipeline 2 × tensor 1, 1f1b, ZeRO 1, 8 micro-batches of 2".
std::string to_string(const GridCandidate& candidate);

// A pipeline schedule as searches know it.
struct ScheduleTraits {
  std::string name;
  std::vector<int> chunks;  // of a stage that a micro-batch passes: what is worth a try
  ChunkPlacement placement = ChunkPlacement::Looped;
  bool splits_backward = false;
  bool overlaps = false;  // lets passes overlap
};
// Of all registered schedules that have Programs.
const std::vector<ScheduleTraits>& schedule_traits();
const ScheduleTraits& traits_of(const std::string& schedule);

// What somebody has chosen already. A schedule says nothing where there is one stage; what would be
// refused there, as chunks, leaves such grids out.
struct GridPins {
  std::optional<int> data;
  std::optional<int> pipeline;
  std::optional<int> tensor;  // also above GridLimits::most_tensor
  std::optional<bool> sequence_parallel;
  std::optional<std::string> schedule;
  std::optional<int> chunks;  // of schedules that leave them open
  std::optional<int> zero;
  std::optional<std::int64_t> micro_batch;
  std::optional<std::int64_t> bucket_bytes;
};

// Gradients are summed by micro-batch, and only the own shard stays.
inline bool gradient_in_shards(const GridCandidate& candidate) {
  return candidate.zero >= 2 && candidate.shape.pipeline == 1;
}

struct GridLimits {
  int ranks = 1;
  std::int64_t global_batch = 1;
  int blocks = 1;       // of the model: no more parts
  int most_tensor = 1;  // usually the devices of a node
  std::int64_t least_bucket_bytes = 4 << 20;
  GridPins pins = {};
};

// All that the numbers and the pins allow, in a fixed order: sizes that divide, ZeRO stages where
// there are data ranks, as many parts as there are blocks. Whether the model can be cut into so
// many tensor ranks is for the model to say, whether a schedule takes so many micro-batches for the
// schedule.
std::vector<GridCandidate> grid_candidates(const GridLimits& limits, const Cluster& cluster);

}  // namespace garonne::plan
