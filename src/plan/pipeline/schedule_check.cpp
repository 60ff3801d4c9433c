#include "plan/pipeline/schedule_check.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/index.hpp"

namespace garonne::plan {
namespace {

// What a chunk has done with a micro-batch.
struct PassOfChunk {
  bool forward = false;
  bool recompute = false;
  bool backward_input = false;
  bool backward_weight = false;
};

class ScheduleCheck {
 public:
  explicit ScheduleCheck(const PipelineSchedule& schedule)
      : schedule_(schedule), neighbours_(schedule) {
    passes_.resize(as_index(schedule.devices) * as_index(schedule.chunks) *
                   as_index(schedule.micro_batches));
  }

  std::optional<ScheduleFault> run() {
    for (int device = 0; device < schedule_.devices; ++device) {
      const auto& order = schedule_.order[as_index(device)];
      for (std::size_t i = 0; i < order.size(); ++i) {
        std::string reason = carry_out(device, order[i]);
        if (reason.empty() && order[i].overlaps_next) reason = check_overlap(order, i);
        if (!reason.empty()) return ScheduleFault{device, static_cast<int>(i), order[i], reason};
      }
    }
    for (int m = 0; m < schedule_.micro_batches; ++m) {
      if (auto fault = check_complete(m)) return fault;
    }
    return find_deadlock();
  }

 private:
  PassOfChunk& pass(ChunkPlace place, int micro_batch) {
    return passes_[neighbours_.index(place) * as_index(schedule_.micro_batches) +
                   as_index(micro_batch)];
  }

  std::string carry_out(int device, const PipelineOperation& operation) {
    if (operation.chunk < 0 || operation.chunk >= schedule_.chunks)
      return fmt::format("a device has {} chunks", schedule_.chunks);
    if (operation.micro_batch < 0 || operation.micro_batch >= schedule_.micro_batches)
      return fmt::format("there are {} micro-batches", schedule_.micro_batches);
    const ChunkPlace place{device, operation.chunk};
    PassOfChunk& done = pass(place, operation.micro_batch);
    if (operation.work == PipelineWork::Forward) {
      if (done.forward) return "runs twice";
      done.forward = true;
      return "";
    }
    if (!done.forward) return "comes before its forward";
    switch (operation.work) {
      case PipelineWork::Recompute:
        if (!schedule_.recomputes(place)) return "this chunk keeps its activations";
        if (done.recompute) return "runs twice";
        if (done.backward_input) return "comes after the backward";
        done.recompute = true;
        return "";
      case PipelineWork::BackwardWeight:
        if (!done.backward_input) return "comes before the gradient of the input";
        if (done.backward_weight) return "runs twice";
        done.backward_weight = true;
        return "";
      default:
        if (done.backward_input) return "runs twice";
        if (schedule_.recomputes(place) && !done.recompute) return "comes before its recompute";
        done.backward_input = true;
        done.backward_weight = operation.work == PipelineWork::Backward;
        return "";
    }
  }

  static std::string check_overlap(const std::vector<PipelineOperation>& order, std::size_t i) {
    if (i + 1 == order.size()) return "overlaps the next operation where there is none";
    const PipelineOperation& first = order[i];
    const PipelineOperation& second = order[i + 1];
    if (second.overlaps_next) return "overlaps an operation that overlaps the next again";
    const auto forward = [](const auto& operation) {
      return operation.work == PipelineWork::Forward;
    };
    const auto backward = [](const auto& operation) {
      return gives_input_gradient(operation.work);
    };
    if (!(forward(first) && backward(second)) && !(backward(first) && forward(second)))
      return "only a forward and a backward can overlap";
    if (first.micro_batch == second.micro_batch && first.chunk == second.chunk)
      return "overlaps the backward that needs it";
    return "";
  }

  std::optional<ScheduleFault> check_complete(int m) {
    const auto routes = pipeline_routes(schedule_.placement, schedule_.devices, schedule_.chunks);
    std::size_t taken = 0;
    for (std::size_t i = 0; i < routes.size(); ++i) {
      if (pass(routes[i].front(), m).forward) taken = i;
    }
    for (std::size_t i = 0; i < routes.size(); ++i) {
      for (const ChunkPlace place : routes[i]) {
        if (auto fault = check_pass(place, m, i == taken)) return fault;
      }
    }
    return std::nullopt;
  }

  std::optional<ScheduleFault> check_pass(ChunkPlace place, int m, bool wanted) {
    const PassOfChunk& done = pass(place, m);
    const auto fault = [&](PipelineWork work, std::string reason) {
      return ScheduleFault{place.device, -1, {work, place.chunk, m, false}, std::move(reason)};
    };
    if (!wanted) {
      if (done.forward)
        return fault(PipelineWork::Forward, "the micro-batch goes in the other direction");
      return std::nullopt;
    }
    if (!done.forward) return fault(PipelineWork::Forward, "is missing");
    if (!done.backward_input) return fault(PipelineWork::BackwardInput, "is missing");
    if (!done.backward_weight) return fault(PipelineWork::BackwardWeight, "is missing");
    return std::nullopt;
  }

  // Runs every device as far as it comes, without times.
  std::optional<ScheduleFault> find_deadlock() {
    passes_.assign(passes_.size(), {});
    next_.assign(as_index(schedule_.devices), 0);
    std::vector<int> waiting;
    for (int device = 0; device < schedule_.devices; ++device) waiting.push_back(device);
    while (!waiting.empty()) {
      const int device = waiting.back();
      waiting.pop_back();
      while (next_[as_index(device)] < schedule_.order[as_index(device)].size() &&
             !blocked(device)) {
        const bool both = next_operation(device).overlaps_next;
        for (int i = 0; i < (both ? 2 : 1); ++i) {
          const PipelineOperation& operation = next_operation(device);
          const ChunkPlace place{device, operation.chunk};
          PassOfChunk& done = pass(place, operation.micro_batch);
          const ChunkPlace* receiver = nullptr;
          if (operation.work == PipelineWork::Forward) {
            done.forward = true;
            receiver = neighbours_.after(place);
          } else if (gives_input_gradient(operation.work)) {
            done.backward_input = true;
            receiver = neighbours_.before(place);
          }
          if (receiver != nullptr && receiver->device != device)
            waiting.push_back(receiver->device);
          ++next_[as_index(device)];
        }
      }
    }
    return describe_deadlock();
  }

  const PipelineOperation& next_operation(int device) const {
    return schedule_.order[as_index(device)][next_[as_index(device)]];
  }

  // What the next operation of a device, or the one that overlaps it, still waits for.
  struct Wait {
    PipelineOperation operation;
    ChunkPlace source;
  };
  std::optional<Wait> blocked(int device) {
    const auto& order = schedule_.order[as_index(device)];
    const std::size_t first = next_[as_index(device)];
    for (std::size_t i = first; i <= first + (order[first].overlaps_next ? 1 : 0); ++i) {
      const ChunkPlace* source = neighbours_.source(device, order[i]);
      if (source == nullptr) continue;
      const PassOfChunk& done = pass(*source, order[i].micro_batch);
      const bool ready =
          order[i].work == PipelineWork::Forward ? done.forward : done.backward_input;
      if (!ready) return Wait{order[i], *source};
    }
    return std::nullopt;
  }

  // Follows who waits for whom into the circle.
  std::optional<ScheduleFault> describe_deadlock() {
    int device = 0;
    while (device < schedule_.devices &&
           next_[as_index(device)] == schedule_.order[as_index(device)].size()) {
      ++device;
    }
    if (device == schedule_.devices) return std::nullopt;
    std::vector<bool> seen(as_index(schedule_.devices), false);
    while (!seen[as_index(device)]) {
      seen[as_index(device)] = true;
      device = blocked(device)->source.device;
    }
    const Wait wait = *blocked(device);
    const std::string_view what =
        wait.operation.work == PipelineWork::Forward ? "forward" : "backward";
    const int other = wait.source.device;
    std::string reason = fmt::format("waits for ever for the {} of chunk {} on device {}", what,
                                     wait.source.chunk, other);
    if (other != device)
      reason += fmt::format(", which waits at its {}", describe(blocked(other)->operation));
    return ScheduleFault{device, static_cast<int>(next_[as_index(device)]), wait.operation, reason};
  }

  const PipelineSchedule& schedule_;
  PipelineNeighbours neighbours_;
  std::vector<PassOfChunk> passes_;  // by chunk of a device and micro-batch
  std::vector<std::size_t> next_;
};

std::string find_misshape(const PipelineSchedule& schedule) {
  if (schedule.devices < 1 || schedule.micro_batches < 1 || schedule.chunks < 1)
    return "devices, micro-batches and chunks are at least 1";
  if (schedule.placement != ChunkPlacement::Looped && schedule.chunks != 2)
    return fmt::format("placement {} has two chunks a device, not {}",
                       to_string(schedule.placement), schedule.chunks);
  const std::int64_t passes =
      std::int64_t{schedule.devices} * schedule.chunks * schedule.micro_batches;
  if (passes > most_pipeline_passes)
    return fmt::format("stages × chunks × micro-batches = {} is more than {}", passes,
                       most_pipeline_passes);
  if (schedule.order.size() != as_index(schedule.devices))
    return fmt::format("there are {} lists of operations for {} devices", schedule.order.size(),
                       schedule.devices);
  for (const ChunkPlace& place : schedule.recomputed) {
    if (place.device < 0 || place.device >= schedule.devices || place.chunk < 0 ||
        place.chunk >= schedule.chunks)
      return fmt::format("there is no chunk {} on a device {} to recompute", place.chunk,
                         place.device);
  }
  return "";
}

}  // namespace

std::string describe(const ScheduleFault& fault) {
  if (fault.device < 0) return fault.reason;
  const std::string position =
      fault.position < 0 ? "" : fmt::format(", operation {}", fault.position);
  return fmt::format("device {}{} ({}): {}", fault.device, position, describe(fault.operation),
                     fault.reason);
}

std::optional<ScheduleFault> find_fault(const PipelineSchedule& schedule) {
  if (std::string reason = find_misshape(schedule); !reason.empty())
    return ScheduleFault{-1, -1, {}, std::move(reason)};
  return ScheduleCheck(schedule).run();
}

}  // namespace garonne::plan
