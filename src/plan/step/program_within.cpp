#include "plan/step/program_within.hpp"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "plan/program/passes_overlap.hpp"
#include "plan/step/passes_in_turn.hpp"

namespace garonne::plan {
namespace {

bool is_reduction(const Instruction& instruction) {
  // The rest are of nodes.
  return instruction.lane == Lane::Collective && !is_overlapped_collective(instruction) &&
         (instruction.operation == Operation::AllReduce ||
          instruction.operation == Operation::ReduceScatter);
}

// `zero`: from stage 2 on the whole gradient is gone when it is reduced.
std::int64_t held_bytes(const Program& program, const Instruction& reduction, int zero) {
  const bool gradient_goes = zero >= 2 && reduction.operation == Operation::ReduceScatter;
  std::int64_t bytes = 0;
  for (const int id : reduction.writes) {
    const Buffer& buffer = program.buffers[as_index(id)];
    if (buffer.kind == BufferKind::Communication || gradient_goes) bytes += buffer.bytes;
  }
  return bytes;
}

// What the leanest Program says of its reductions, but for the sums of the step.
struct Reductions {
  int count = 0;
  std::int64_t largest_bytes = 0;
  // By number of complete buckets: the peak from then on, without what reductions hold.
  std::vector<std::int64_t> others_bytes;
};

Reductions reductions_of(const Program& program, const Prediction& prediction, int zero) {
  Reductions found;
  std::vector<int> last_added(program.buffers.size(), -1);  // by buffer: the backward
  std::vector<int> completed;                               // by bucket: the last of them
  std::vector<std::int64_t> others;                         // by instruction
  std::int64_t under_way = 0;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[as_index(i)];
    if (instruction.operation == Operation::SumSquares) break;
    if (is_backward(instruction.operation)) {
      for (const int id : instruction.writes) last_added[as_index(id)] = i;
    }
    if (is_reduction(instruction)) {
      const std::int64_t bytes = held_bytes(program, instruction, zero);
      ++found.count;
      found.largest_bytes = std::max(found.largest_bytes, bytes);
      under_way += bytes;
      int& complete = last_added[as_index(instruction.arguments.inputs[0])];
      if (complete >= 0) completed.push_back(complete);
      complete = -1;  // the next axis reduces the same
    }
    others.push_back(prediction.during_bytes[as_index(i)] - under_way);
    if (instruction.operation != Operation::Wait) continue;
    const Instruction& waited = program.instructions[as_index(instruction.completes)];
    if (is_reduction(waited)) under_way -= held_bytes(program, waited, zero);
  }
  for (std::size_t i = others.size(); i-- > 1;) others[i - 1] = std::max(others[i - 1], others[i]);
  std::sort(completed.begin(), completed.end());
  found.others_bytes.push_back(others.empty() ? 0 : others.front());
  for (const int position : completed) found.others_bytes.push_back(others[as_index(position + 1)]);
  return found;
}

// What a solver should leave room for where not all fit: more reductions at once than that are
// rarely worth a recomputation.
constexpr std::int64_t reductions_worth_room = 3;

constexpr std::int64_t everything = std::numeric_limits<std::int64_t>::max() / 4;

ReplayedProgram made_of(const ModelGraph& graph, const StepShape& step,
                        const StepSchedule& schedule) {
  ReplayedProgram made{make_training_program(graph, step, schedule), {}};
  made.prediction = replay(made.program);
  return made;
}

}  // namespace

ReplayedProgram make_leaner_program(const ModelGraph& graph, const StepShape& step,
                                    const StepSchedule& schedule) {
  ReplayedProgram made = made_of(graph, step, schedule);
  if (!passes_overlap(made.program)) return made;
  ReplayedProgram in_turn = made_of(graph, with_passes_in_turn(step), schedule);
  return made.prediction.peak_bytes <= in_turn.prediction.peak_bytes ? std::move(made)
                                                                     : std::move(in_turn);
}

ProgramWithin make_program_within(const ModelGraph& graph, const StepShape& step,
                                  const StepSchedule& schedule, std::int64_t budget_bytes) {
  StepShape shape = step;
  shape.reduction_bytes.clear();
  ProgramWithin best;
  best.program = make_training_program(graph, shape, schedule);
  best.prediction = replay(best.program);
  if (best.prediction.peak_bytes > budget_bytes && passes_overlap(best.program)) {
    ReplayedProgram in_turn = made_of(graph, with_passes_in_turn(shape), schedule);
    if (in_turn.prediction.peak_bytes < best.prediction.peak_bytes) {
      best.wanted_bytes = best.prediction.peak_bytes - budget_bytes;
      shape = with_passes_in_turn(std::move(shape));
      best.program = std::move(in_turn.program);
      best.prediction = std::move(in_turn.prediction);
    }
  }
  best.least_bytes = best.prediction.peak_bytes;
  if (best.least_bytes > budget_bytes) return best;
  const Reductions reductions = reductions_of(best.program, best.prediction, step.zero);
  if (reductions.count < 2) return best;
  const auto consider = [&](std::vector<std::int64_t> under_way) {
    shape.reduction_bytes = std::move(under_way);
    Program program = make_training_program(graph, shape, schedule);
    Prediction prediction = replay(program);
    const bool faster = prediction.seconds < best.prediction.seconds;
    const std::int64_t peak = prediction.peak_bytes;
    if (peak <= budget_bytes && faster) {
      best.program = std::move(program);
      best.prediction = std::move(prediction);
    }
    return std::make_pair(peak, faster);
  };
  const auto [most_bytes, pays] = consider({everything});
  if (most_bytes <= budget_bytes || !pays) return best;
  const std::int64_t for_reductions =
      std::min(most_bytes - budget_bytes, reductions_worth_room * reductions.largest_bytes);
  best.wanted_bytes = std::max(best.wanted_bytes, for_reductions);
  std::vector<std::int64_t> free;
  for (const std::int64_t bytes : reductions.others_bytes) free.push_back(budget_bytes - bytes);
  // More under way may also change when gathers are, which replay then finds too much.
  if (consider(std::move(free)).first > budget_bytes) consider({budget_bytes - best.least_bytes});
  return best;
}

}  // namespace garonne::plan
