// What the makers of pipeline schedules share; the registry declares them. In comments P is the
// number of devices, r one of them, M the number of micro-batches, v the chunks of a device.
#pragma once

#include <deque>
#include <vector>

#include "plan/pipeline/schedule.hpp"
#include "plan/pipeline/schedule_registry.hpp"

namespace garonne::plan {

// A schedule without operations, of the request's sizes. Throws ConfigError where stages or
// micro-batches are missing or out of range, or where another number of chunks than `chunks` or any
// group size is asked for.
PipelineSchedule empty_schedule(const PipelineRequest& request, const char* name, int chunks,
                                ChunkPlacement placement);
// The same for a schedule that takes any number of chunks; `request.group_size` is left to it.
PipelineSchedule empty_schedule_of_chunks(const PipelineRequest& request, const char* name,
                                          int chunks, ChunkPlacement placement);

// Appends operations to the list of one device, numbering the micro-batches of each kind of work in
// a chunk from 0.
class DeviceOrder {
 public:
  DeviceOrder(std::vector<PipelineOperation>& order, int chunks)
      : order_(order), counts_(static_cast<std::size_t>(chunks)) {}

  void forward(int chunk) { add(PipelineWork::Forward, chunk, of(chunk).forwards++); }
  void backward(int chunk) { add(PipelineWork::Backward, chunk, of(chunk).backwards++); }
  // Puts the gradient of the weights off.
  void backward_input(int chunk);
  // Gradients of weights that were put off: the oldest, or the oldest of a chunk. There must be
  // one.
  void backward_weight();
  void backward_weight(int chunk);
  // A forward and the full backward of another micro-batch, meant to run at the same time.
  void overlapped(int forward_chunk, int backward_chunk);

  int forwards(int chunk) const { return counts_[static_cast<std::size_t>(chunk)].forwards; }
  bool weights_pending() const { return !pending_.empty(); }
  bool weights_pending(int chunk) const;

 private:
  struct Counts {
    int forwards = 0;
    int backwards = 0;
  };
  Counts& of(int chunk) { return counts_[static_cast<std::size_t>(chunk)]; }
  void add(PipelineWork work, int chunk, int micro_batch) {
    order_.push_back({work, chunk, micro_batch, false});
  }

  std::vector<PipelineOperation>& order_;
  std::vector<Counts> counts_;
  std::deque<PipelineOperation> pending_;
};

// Of so many micro-batches of a bidirectional pipeline those that go down its devices.
int micro_batches_down(int devices, int micro_batches);

// Takes out the micro-batches from `micro_batches` on. What is left keeps its order, so it stays
// feasible.
void keep_first_micro_batches(PipelineSchedule& schedule, int micro_batches);

}  // namespace garonne::plan
