#include "plan/planners/recomputation_program.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/graph/linear_program.hpp"

namespace garonne::plan {
namespace {

constexpr std::size_t most_combinations = 1000;
constexpr double unreachable = std::numeric_limits<double>::infinity();
// Seconds and bytes are scaled to about that, far from the tolerances of the solver.
constexpr double scale = 1000;

bool beats(const ChunkOption& a, const ChunkOption& b) {
  return a.saved_bytes <= b.saved_bytes && a.again_seconds <= b.again_seconds &&
         a.saved_bytes + a.remade_bytes <= b.saved_bytes + b.remade_bytes;
}

ChunkOption with_block(const ChunkOption& chunk, const BlockCost& block,
                       const BlockOption& option) {
  return {chunk.saved_bytes + block.input_bytes + option.saved_bytes,
          std::max(chunk.remade_bytes, block.options.front().saved_bytes - option.saved_bytes),
          chunk.again_seconds + option.again_seconds};
}

void drop_beaten(std::vector<ChunkOption>& options) {
  std::stable_sort(options.begin(), options.end(),
                   [](const auto& a, const auto& b) { return a.again_seconds < b.again_seconds; });
  std::vector<ChunkOption> kept;
  for (std::size_t k = 0; k < options.size(); ++k) {
    bool beaten = false;
    for (std::size_t other = 0; other < options.size() && !beaten; ++other) {
      if (other == k || !beats(options[other], options[k])) continue;
      beaten = !(options[other] == options[k]) && (!beats(options[k], options[other]) || other < k);
      beaten = beaten || (options[other] == options[k] && other < k);
    }
    if (!beaten) kept.push_back(options[k]);
  }
  options = std::move(kept);
}

// Walks the operations of all devices in an order in which what each waits for comes before it.
class StepWalk {
 public:
  explicit StepWalk(const PipelineSchedule& schedule)
      : schedule_(schedule), neighbours_(schedule) {}

  const PipelineNeighbours& neighbours() const { return neighbours_; }

  struct Step {
    int device = 0;
    PipelineOperation operation;
    bool waits = false;    // for an operation of chunk `source`
    bool travels = false;  // on another device
    std::size_t chunk = 0;
    std::size_t source = 0;
    bool is_last = false;  // of its device
  };
  void for_each(const std::function<void(const Step&)>& visit) const {
    const auto chunks = as_index(schedule_.devices) * as_index(schedule_.chunks);
    std::vector<std::vector<bool>> forward(chunks,
                                           std::vector<bool>(as_index(schedule_.micro_batches)));
    std::vector<std::vector<bool>> backward = forward;
    std::vector<std::size_t> next(schedule_.order.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (int device = 0; device < schedule_.devices; ++device) {
        const auto& order = schedule_.order[as_index(device)];
        while (next[as_index(device)] < order.size()) {
          Step step;
          step.device = device;
          step.operation = order[next[as_index(device)]];
          step.is_last = next[as_index(device)] + 1 == order.size();
          step.chunk = neighbours_.index({device, step.operation.chunk});
          const ChunkPlace* source = neighbours_.source(device, step.operation);
          const bool forwards = step.operation.work == PipelineWork::Forward;
          if (source != nullptr) {
            step.waits = true;
            step.travels = source->device != device;
            step.source = neighbours_.index(*source);
            if (!(forwards ? forward : backward)[step.source][as_index(step.operation.micro_batch)])
              break;
          }
          visit(step);
          if (forwards)
            forward[step.chunk][as_index(step.operation.micro_batch)] = true;
          else if (gives_input_gradient(step.operation.work))
            backward[step.chunk][as_index(step.operation.micro_batch)] = true;
          ++next[as_index(device)];
          moved = true;
        }
      }
    }
  }

 private:
  const PipelineSchedule& schedule_;
  PipelineNeighbours neighbours_;
};

double own_seconds(const PhaseSeconds& chunk, PipelineWork work) {
  switch (work) {
    case PipelineWork::Backward:
      return chunk.backward_input + chunk.backward_weight;
    case PipelineWork::BackwardInput:
      return chunk.backward_input;
    case PipelineWork::BackwardWeight:
      return chunk.backward_weight;
    default:
      return chunk.forward;
  }
}

// A moment at which a device may hold most: the micro-batches of its chunks that it holds, and the
// one whose backward is under way, if any.
struct ProgramMoment {
  std::vector<std::pair<std::size_t, int>> held;
  std::optional<std::pair<std::size_t, int>> remade;
};

std::vector<ProgramMoment> moments_of(const RecomputationProblem& problem, int device,
                                      const PipelineNeighbours& neighbours) {
  std::vector<ProgramMoment> moments;
  std::set<std::pair<std::size_t, int>> held;
  for (const auto& operation : problem.schedule.order[as_index(device)]) {
    const std::pair<std::size_t, int> pass{neighbours.index({device, operation.chunk}),
                                           operation.micro_batch};
    if (operation.work == PipelineWork::Forward) {
      held.insert(pass);
      moments.push_back({{held.begin(), held.end()}, std::nullopt});
    } else if (gives_input_gradient(operation.work)) {
      moments.push_back({{held.begin(), held.end()}, pass});
    }
    // Where no weight gradient is left for later, nothing is held for it.
    const bool is_over = operation.work == PipelineWork::BackwardInput &&
                         problem.costs.chunks[pass.first].backward_weight == 0;
    if (is_over || ends_activations(operation.work)) held.erase(pass);
  }
  return moments;
}

// Ends of operations, choices, and what holds between them.
class RecomputedProgram {
 public:
  explicit RecomputedProgram(const RecomputationProblem& problem)
      : problem_(problem), walk_(problem.schedule) {
    double busiest = 0;
    for (const auto& chunk : problem.costs.chunks) busiest += chunk.sum();
    unit_ = busiest * problem.schedule.micro_batches / scale;
    step_ = program_.add_variable({.lower = 0, .upper = unreachable, .cost = 1});
    for (const auto& options : problem.options) {
      chosen_.emplace_back();
      for (int m = 0; m < problem.schedule.micro_batches; ++m) add_choice(options);
    }
    add_times();
    for (int device = 0; device < problem.schedule.devices; ++device) add_bytes(device);
  }

  const LinearProgram& program() const { return program_; }

  std::vector<std::vector<int>> options_of(const std::vector<double>& values) const {
    std::vector<std::vector<int>> options;
    for (const auto& of_chunk : chosen_) {
      options.emplace_back();
      for (const auto& variables : of_chunk) {
        int best = 0;
        for (std::size_t k = 0; k < variables.size(); ++k) {
          if (values[as_index(variables[k])] > values[as_index(variables[as_index(best)])])
            best = static_cast<int>(k);
        }
        options.back().push_back(best);
      }
    }
    return options;
  }

 private:
  void add_choice(const std::vector<ChunkOption>& options) {
    std::vector<int> variables;
    std::vector<std::pair<int, double>> one;
    for (std::size_t k = 0; k < options.size(); ++k) {
      variables.push_back(program_.add_variable({.lower = 0, .upper = 1, .integer = true}));
      one.emplace_back(variables.back(), 1);
    }
    program_.add_row(1, 1, std::move(one));
    chosen_.back().push_back(std::move(variables));
  }

  void add_times() {
    const std::size_t chunks = problem_.options.size();
    std::vector<std::vector<int>> forward(
        chunks, std::vector<int>(as_index(problem_.schedule.micro_batches)));
    std::vector<std::vector<int>> backward = forward;
    std::vector<int> before(as_index(problem_.schedule.devices), -1);
    walk_.for_each([&](const StepWalk::Step& step) {
      const auto m = as_index(step.operation.micro_batch);
      const bool forwards = step.operation.work == PipelineWork::Forward;
      const int end = program_.add_variable({.lower = 0, .upper = unreachable});
      const double seconds =
          own_seconds(problem_.costs.chunks[step.chunk], step.operation.work) / unit_;
      // end >= begin + seconds + what is run again
      const auto add = [&](int earlier, double later_by) {
        std::vector<std::pair<int, double>> row = {{end, 1}};
        if (earlier >= 0) row.emplace_back(earlier, -1);
        if (gives_input_gradient(step.operation.work)) {
          const auto& options = problem_.options[step.chunk];
          for (std::size_t k = 0; k < options.size(); ++k) {
            if (options[k].again_seconds > 0)
              row.emplace_back(chosen_[step.chunk][m][k], -options[k].again_seconds / unit_);
          }
        }
        program_.add_row(seconds + later_by, unreachable, std::move(row));
      };
      add(before[as_index(step.device)], 0);
      if (step.waits)
        add((forwards ? forward : backward)[step.source][m],
            step.travels ? problem_.costs.hop_seconds / unit_ : 0);
      before[as_index(step.device)] = end;
      if (forwards)
        forward[step.chunk][m] = end;
      else if (gives_input_gradient(step.operation.work))
        backward[step.chunk][m] = end;
      if (step.is_last)
        program_.add_row(problem_.after_seconds[as_index(step.device)] / unit_, unreachable,
                         {{step_, 1}, {end, -1}});
    });
  }

  void add_bytes(int device) {
    const double room = static_cast<double>(problem_.room_bytes[as_index(device)]);
    const double unit = std::max(room, 1.0) / scale;
    for (const ProgramMoment& moment : moments_of(problem_, device, walk_.neighbours())) {
      std::vector<std::pair<int, double>> row;
      double most = 0;
      for (const auto& pass : moment.held) {
        const auto& options = problem_.options[pass.first];
        double largest = 0;
        for (std::size_t k = 0; k < options.size(); ++k) {
          std::int64_t bytes = options[k].saved_bytes;
          if (moment.remade == pass) bytes += options[k].remade_bytes;
          largest = std::max(largest, static_cast<double>(bytes));
          if (bytes > 0)
            row.emplace_back(chosen_[pass.first][as_index(pass.second)][k],
                             static_cast<double>(bytes) / unit);
        }
        most += largest;
      }
      if (most > room) program_.add_row(-unreachable, room / unit, std::move(row));
    }
  }

  const RecomputationProblem& problem_;
  StepWalk walk_;
  LinearProgram program_;
  double unit_ = 1;  // seconds
  int step_ = 0;
  std::vector<std::vector<std::vector<int>>> chosen_;  // by chunk, micro-batch, option
};

}  // namespace

std::vector<ChunkOption> chunk_options(const std::vector<BlockCost>& blocks, int first, int last) {
  std::size_t combinations = 1;
  std::size_t most = 1;
  for (int b = first; b < last; ++b) {
    const std::size_t number = blocks[as_index(b)].options.size();
    combinations = std::min(combinations * number, most_combinations + 1);
    most = std::max(most, number);
  }
  std::vector<ChunkOption> options;
  if (combinations <= most_combinations) {
    options.emplace_back();
    for (int b = first; b < last; ++b) {
      std::vector<ChunkOption> longer;
      for (const ChunkOption& chunk : options) {
        for (const BlockOption& option : blocks[as_index(b)].options)
          longer.push_back(with_block(chunk, blocks[as_index(b)], option));
      }
      options = std::move(longer);
    }
  } else {
    const std::size_t number = as_index(last - first);
    for (std::size_t index = 0; index <= (most - 1) * number; ++index) {
      ChunkOption chunk;
      for (std::size_t k = 0; k < number; ++k) {
        const BlockCost& block = blocks[as_index(first) + k];
        chunk = with_block(chunk, block,
                           block.options[option_at_index(index, k, number, block.options.size())]);
      }
      options.push_back(chunk);
    }
  }
  drop_beaten(options);
  return options;
}

double recomputation_seconds(const RecomputationProblem& problem,
                             const std::vector<std::vector<int>>& options) {
  std::vector<std::vector<double>> forward(
      options.size(), std::vector<double>(as_index(problem.schedule.micro_batches), 0));
  std::vector<std::vector<double>> backward = forward;
  std::vector<double> now(as_index(problem.schedule.devices), 0);
  double last = 0;
  StepWalk(problem.schedule).for_each([&](const StepWalk::Step& step) {
    const auto m = as_index(step.operation.micro_batch);
    const bool forwards = step.operation.work == PipelineWork::Forward;
    double& clock = now[as_index(step.device)];
    if (step.waits)
      clock = std::max(clock, (forwards ? forward : backward)[step.source][m] +
                                  (step.travels ? problem.costs.hop_seconds : 0));
    clock += own_seconds(problem.costs.chunks[step.chunk], step.operation.work);
    if (forwards) {
      forward[step.chunk][m] = clock;
    } else if (gives_input_gradient(step.operation.work)) {
      clock += problem.options[step.chunk][as_index(options[step.chunk][m])].again_seconds;
      backward[step.chunk][m] = clock;
    }
    last = std::max(last, clock + problem.after_seconds[as_index(step.device)]);
  });
  return last;
}

bool recomputation_fits(const RecomputationProblem& problem,
                        const std::vector<std::vector<int>>& options) {
  const PipelineNeighbours neighbours(problem.schedule);
  for (int device = 0; device < problem.schedule.devices; ++device) {
    for (const ProgramMoment& moment : moments_of(problem, device, neighbours)) {
      std::int64_t bytes = 0;
      for (const auto& pass : moment.held) {
        const ChunkOption& option =
            problem.options[pass.first][as_index(options[pass.first][as_index(pass.second)])];
        bytes += option.saved_bytes + (moment.remade == pass ? option.remade_bytes : 0);
      }
      if (bytes > problem.room_bytes[as_index(device)]) return false;
    }
  }
  return true;
}

Recomputation solve_recomputation(const RecomputationProblem& problem, std::int64_t most_nodes) {
  Recomputation answer;
  for (const std::int64_t room : problem.room_bytes) {
    if (room >= 0) continue;
    answer.proven = true;
    return answer;
  }
  // Where everything can be kept nothing is faster.
  answer.options.assign(problem.options.size(),
                        std::vector<int>(as_index(problem.schedule.micro_batches), 0));
  if (recomputation_fits(problem, answer.options)) {
    answer.found = answer.proven = true;
    answer.seconds = recomputation_seconds(problem, answer.options);
    return answer;
  }
  const RecomputedProgram program(problem);
  LinearProgramOptions options;
  options.most_nodes = most_nodes;
  const LinearProgramAnswer solved = solve_linear_program(program.program(), options);
  answer.proven = solved.status != LinearProgramStatus::Stopped;
  answer.options.clear();
  if (solved.values.empty()) return answer;
  answer.options = program.options_of(solved.values);
  answer.found = recomputation_fits(problem, answer.options);
  answer.proven = answer.proven && answer.found;
  answer.seconds = recomputation_seconds(problem, answer.options);
  return answer;
}

}  // namespace garonne::plan
