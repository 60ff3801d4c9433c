// A pipeline schedule as a value: which device runs which forward and backward in which order.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace garonne::plan {

// The largest schedules. A pass is one micro-batch in one chunk; it has two to four operations.
inline constexpr int most_pipeline_devices = 4096;
inline constexpr int most_pipeline_micro_batches = 65536;
inline constexpr int most_pipeline_chunks = 256;
inline constexpr std::int64_t most_pipeline_passes = std::int64_t{1} << 22;

// A `Backward` computes both gradients; `BackwardInput` and `BackwardWeight` are its two halves.
enum class PipelineWork { Forward, Backward, BackwardInput, BackwardWeight, Recompute };

// As users read and write it: "forward", "backward-input".
std::string_view to_string(PipelineWork work);

// Whether it makes the gradient that the part of the model before waits for.
inline bool gives_input_gradient(PipelineWork work) {
  return work == PipelineWork::Backward || work == PipelineWork::BackwardInput;
}
// Whether it is the last that needs the activations.
inline bool ends_activations(PipelineWork work) {
  return work == PipelineWork::Backward || work == PipelineWork::BackwardWeight;
}

struct PipelineOperation {
  PipelineWork work = PipelineWork::Forward;
  int chunk = 0;        // of its device
  int micro_batch = 0;  // from 0
  // May run at the same time as the next operation of its device. In a Program one of the two
  // computes while the other communicates over the tensor group (plan/step/passes_in_turn.hpp).
  bool overlaps_next = false;

  auto operator<=>(const PipelineOperation&) const = default;
};

// "forward of chunk 1, micro-batch 3".
std::string describe(const PipelineOperation& operation);

// Which device holds which part of the model, for P devices and v chunks a device.
enum class ChunkPlacement {
  Looped,         // part c·P + r is chunk c of device r
  V,              // two chunks: part r is chunk 0 and part 2P−1−r chunk 1 of device r
  Bidirectional,  // two whole models: chunk 0 of device r is part r, chunk 1 part P−1−r
};
std::string_view to_string(ChunkPlacement placement);

// A chunk of a device; where a part of the model is.
struct ChunkPlace {
  int device = 0;
  int chunk = 0;

  auto operator<=>(const ChunkPlace&) const = default;
};

struct PipelineSchedule {
  std::string name;
  int devices = 1;
  int micro_batches = 1;
  int chunks = 1;  // of a device
  ChunkPlacement placement = ChunkPlacement::Looped;
  // Chunks that keep only their input from the forward and run it again before the backward. There
  // are no Programs of such a schedule.
  std::vector<ChunkPlace> recomputed;
  // One list a device.
  std::vector<std::vector<PipelineOperation>> order;

  bool operator==(const PipelineSchedule&) const = default;

  // In how many of a device's chunks a micro-batch has work and activations, each an equal share of
  // what it has on the device. In a bidirectional pipeline it passes one of the two.
  int chunks_passed() const { return placement == ChunkPlacement::Bidirectional ? 1 : chunks; }
  bool recomputes(ChunkPlace place) const;
  bool has_overlaps() const;
};

// The ways that micro-batches go, from the first part of the model to the last; one, or one for
// each direction. A chunk is on one route.
using PipelineRoute = std::vector<ChunkPlace>;
std::vector<PipelineRoute> pipeline_routes(ChunkPlacement placement, int devices, int chunks);

// Where the chunks of a schedule get values from and hand them to.
class PipelineNeighbours {
 public:
  explicit PipelineNeighbours(const PipelineSchedule& schedule);

  // The chunk with the part of the model before (after); null at the ends.
  const ChunkPlace* before(ChunkPlace place) const { return neighbour(before_, place); }
  const ChunkPlace* after(ChunkPlace place) const { return neighbour(after_, place); }
  // The chunk whose forward or backward of the same micro-batch an operation waits for; null where
  // all that it needs comes from its own device's earlier operations.
  const ChunkPlace* source(int device, const PipelineOperation& operation) const;
  // Of a chunk among all of them.
  std::size_t index(ChunkPlace place) const {
    return static_cast<std::size_t>(place.device) * static_cast<std::size_t>(chunks_) +
           static_cast<std::size_t>(place.chunk);
  }

 private:
  static constexpr ChunkPlace none{-1, -1};

  const ChunkPlace* neighbour(const std::vector<ChunkPlace>& list, ChunkPlace place) const {
    const ChunkPlace& found = list[index(place)];
    return found == none ? nullptr : &found;
  }

  int chunks_;
  std::vector<ChunkPlace> before_;
  std::vector<ChunkPlace> after_;
};

}  // namespace garonne::plan
