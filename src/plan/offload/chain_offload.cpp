#include "plan/offload/chain_offload.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <set>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/chain/chain_solver.hpp"
#include "plan/model/group_links.hpp"
#include "plan/offload/weight_offload.hpp"
#include "plan/stage/chain_budgets.hpp"

namespace garonne::plan {
namespace {

// With the latency of copies as large as the values between blocks are on average.
double rate_of(const Chain& chain, const Link& link) {
  std::int64_t bytes = 0;
  for (const ChainBlock& block : chain.blocks) bytes += block.output_bytes;
  bytes = std::max<std::int64_t>(1, bytes / static_cast<std::int64_t>(chain.blocks.size()));
  return static_cast<double>(bytes) / message_seconds(bytes, link);
}

int first_loaded(const ModelGraph& model) {
  const auto found = std::find_if(model.values.begin(), model.values.end(),
                                  [](const ValueSpec& value) { return value.loaded; });
  return found == model.values.end() ? -1 : static_cast<int>(found - model.values.begin());
}

// A parameter of several blocks is the first one's.
void add_weights(const ModelGraph& model, const StepShape& step, std::int64_t least_bytes,
                 StageChain& stage) {
  std::vector<bool> counted(model.parameters.size());
  for (std::size_t block = 0; block < stage.nodes.size(); ++block) {
    const auto [begin, end] = stage.nodes[block];
    for (int node = begin; node < end; ++node) {
      for (const int parameter : model.nodes[as_index(node)].parameters) {
        const std::int64_t bytes =
            round_up(model.parameters[as_index(parameter)].elements * step.element_bytes.parameter,
                     step.granularity);
        if (counted[as_index(parameter)] || bytes < least_bytes) continue;
        counted[as_index(parameter)] = true;
        stage.chain.blocks[block].weight_bytes += bytes;
      }
    }
  }
}

void add_weights_below(const StageChain& stage, const ChainAnswer& answer,
                       std::vector<bool>& nodes) {
  for (const ChainGap& gap : answer.gaps) {
    if (gap.item != ChainItem::Weights) continue;
    const auto [begin, end] = stage.nodes[as_index(gap.index)];
    std::fill(nodes.begin() + begin, nodes.begin() + end, true);
  }
}

BelowAtTurn below_at_turn(const ModelGraph& model, const StageChain& stage,
                          const ChainAnswer& answer) {
  const auto backward = std::find_if(
      answer.passes.begin(), answer.passes.end(),
      [](const ChainOperation& one) { return one.kind == ChainOperationKind::Backward; });
  const int turn = static_cast<int>(backward - answer.passes.begin());
  BelowAtTurn below{std::vector<bool>(model.values.size()), std::vector<bool>(model.nodes.size())};
  for (const ChainGap& gap : answer.gaps) {
    if (gap.item == ChainItem::Weights) continue;
    expect(gap.last_use < turn && gap.next_use >= turn,
           "what a chain of blocks moves of what it makes is below around the turn");
    if (gap.item == ChainItem::Value) {
      const int value = gap.index == 0 ? first_loaded(model) : stage.value[as_index(gap.index)];
      if (value >= 0) below.values[as_index(value)] = true;
      continue;
    }
    const auto [begin, end] = stage.nodes[as_index(gap.index)];
    for (int node = begin; node < end; ++node) {
      below.records[as_index(node)] = true;
      below.values[as_index(model.nodes[as_index(node)].output)] = true;
    }
  }
  return below;
}

// By micro-batch, the place of its first backward; -1 where it has none.
std::vector<int> turns_of(const Program& program) {
  std::vector<int> turns;
  for (std::size_t place = 0; place < program.instructions.size(); ++place) {
    const Instruction& instruction = program.instructions[place];
    if (!is_backward(instruction.operation)) continue;
    if (as_index(instruction.micro_batch) >= turns.size())
      turns.resize(as_index(instruction.micro_batch) + 1, -1);
    int& turn = turns[as_index(instruction.micro_batch)];
    if (turn < 0) turn = static_cast<int>(place);
  }
  return turns;
}

// What a buffer holds: a value of the model or the record of a node.
struct Content {
  int micro_batch = -1;
  int value = -1;
  int node = -1;
};

// By buffer, of values and records.
std::vector<Content> contents_of(const Program& program, const ModelGraph& model) {
  std::vector<Content> contents(program.buffers.size());
  for (const Instruction& instruction : program.instructions) {
    const Arguments& arguments = instruction.arguments;
    const int m = instruction.micro_batch;
    for (const LoadedValue& loaded : arguments.loaded)
      contents[as_index(loaded.buffer)] = {m, loaded.value, -1};
    if (instruction.operation == Operation::Receive && !arguments.gradient && arguments.output >= 0)
      contents[as_index(arguments.output)] = {m, arguments.value, -1};
    const bool runs_forward =
        is_forward(instruction.operation) || instruction.operation == Operation::FinishForward;
    if (!runs_forward || instruction.node_index < 0) continue;
    if (arguments.output >= 0) {
      contents[as_index(arguments.output)] = {
          m, model.nodes[as_index(instruction.node_index)].output, -1};
    }
    for (const int slot : arguments.record)
      if (slot >= 0) contents[as_index(slot)] = {m, -1, instruction.node_index};
  }
  return contents;
}

std::vector<IdleTime> around_turns(
    const Program& program,
    const std::function<int(int buffer)>& micro_batch_of) {  // -1: it stays
  const std::vector<int> turns = turns_of(program);
  std::vector<IdleTime> found;
  for (const IdleTime& idle : idle_times(program)) {
    const int micro_batch = micro_batch_of(idle.buffer);
    if (micro_batch < 0 || as_index(micro_batch) >= turns.size()) continue;
    const int turn = turns[as_index(micro_batch)];
    if (idle.last_use < turn && idle.next_use >= turn) found.push_back(idle);
  }
  return found;
}

}  // namespace

CopyingStepPlanner::CopyingStepPlanner(const ChainSolver& solver, const ModelGraph& model,
                                       const StepShape& step, TextCache* cache,
                                       std::optional<std::int64_t> least_weight_bytes)
    : solver_(solver), micro_batches_(step.micro_batches) {
  problems_.push_back(make_stage_problem(model, step, GradientBuckets::Made, cache));
  if (step.micro_batches > 1) {
    const auto later =
        step.reduces_each_micro_batch() ? GradientBuckets::Made : GradientBuckets::There;
    problems_.push_back(make_stage_problem(model, step, later, cache));
  }
  for (StageProblem& problem : problems_) {
    if (!problem.chain) {
      throw ConfigError("memory.plan", solver.name,
                        "does not apply: " + refusal_without_chain(problem) +
                            "; leave memory.plan at \"auto\", which moves what it finds idle");
    }
    if (least_weight_bytes) add_weights(model, step, *least_weight_bytes, *problem.chain);
  }
  weight_bytes_ = chain_weight_bytes(problems_.front().chain->chain);
}

std::optional<StepWithCopies> CopyingStepPlanner::within(std::int64_t budget_bytes, double share,
                                                         const TierLinks& links) const {
  StepWithCopies step;
  if (weight_bytes_ > 0) step.weights.resize(problems_.front().model.nodes.size());
  std::vector<NodeSchedule> schedules;
  for (const StageProblem& problem : problems_) {
    Chain chain = problem.chain->chain;
    chain.links = {rate_of(chain, links.out), rate_of(chain, links.in)};
    const std::int64_t available =
        available_to_chain(problem, budget_bytes - problem.tasks.static_bytes, weight_bytes_);
    const auto bytes = static_cast<std::int64_t>(share * static_cast<double>(available));
    if (bytes < solver_.minimum_budget(chain)) return std::nullopt;
    const ChainAnswer answer = solver_.solve(chain, bytes, ChainSolverOptions());
    if (!answer.operations) return std::nullopt;
    auto schedule = schedule_of_sequence(problem, answer.passes);
    if (!schedule) return std::nullopt;
    schedules.push_back(std::move(*schedule));
    step.below.push_back(below_at_turn(problem.model, *problem.chain, answer));
    add_weights_below(*problem.chain, answer, step.weights);
  }
  step.schedule = of_step(std::move(schedules));
  return step;
}

StepSchedule CopyingStepPlanner::leanest() const {
  std::vector<NodeSchedule> schedules;
  for (const StageProblem& problem : problems_) {
    auto schedule = schedule_of_sequence(problem, solver_.leanest(problem.chain->chain));
    if (!schedule) {
      throw ConfigError("memory.plan", solver_.name,
                        "does not apply: it finds no schedule of few enough passes; leave "
                        "memory.plan at \"auto\"");
    }
    schedules.push_back(std::move(*schedule));
  }
  return of_step(std::move(schedules));
}

StepSchedule CopyingStepPlanner::of_step(std::vector<NodeSchedule> schedules) const {
  StepSchedule step;
  step.of_micro_batch.assign(as_index(micro_batches_), static_cast<int>(schedules.size()) - 1);
  step.of_micro_batch[0] = 0;
  step.schedules = std::move(schedules);
  return step;
}

std::vector<IdleTime> idle_times_below(const Program& program, const ModelGraph& model,
                                       const StepWithCopies& step) {
  const std::vector<Content> contents = contents_of(program, model);
  return around_turns(program, [&](int buffer) {
    const Content& content = contents[as_index(buffer)];
    if (content.micro_batch < 0) return -1;
    const BelowAtTurn& below =
        step.below[as_index(step.schedule.of_micro_batch[as_index(content.micro_batch)])];
    const bool moves = content.value >= 0 ? below.values[as_index(content.value)]
                                          : below.records[as_index(content.node)];
    return moves ? content.micro_batch : -1;
  });
}

std::vector<int> weights_below(const Program& program, const StepWithCopies& step,
                               std::int64_t least_bytes) {
  if (step.weights.empty()) return {};
  std::set<int> read;
  for (const Instruction& instruction : program.instructions) {
    const int node = instruction.node_index;
    if (node >= 0 && step.weights[as_index(node)])
      read.insert(instruction.reads.begin(), instruction.reads.end());
  }
  std::vector<int> found = movable_weights(program, least_bytes);
  std::erase_if(found, [&](int buffer) { return !read.contains(buffer); });
  return found;
}

std::vector<IdleTime> idle_times_at_turns(const Program& program) {
  std::vector<int> micro_batch(program.buffers.size(), -1);
  for (const Instruction& instruction : program.instructions) {
    for (const int id : instruction.writes) micro_batch[as_index(id)] = instruction.micro_batch;
  }
  return around_turns(program, [&](int buffer) { return micro_batch[as_index(buffer)]; });
}

}  // namespace garonne::plan
