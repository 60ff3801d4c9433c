#include "train/plans/given_programs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "plan/model/model_hash.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/rank_sums_check.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/rank_program.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/plans/saved_programs.hpp"
#include "train/plans/saving_plan.hpp"
#include "train/plans/smallest_budget.hpp"
#include "train/setup/rank_agreement.hpp"
#include "train/workload/program_loads.hpp"

namespace garonne::train {
namespace {

struct GivenStage {
  Setup setup;
  plan::Program program;  // of its first rank
};

std::string path_of(const std::string& directory, const Setup& whole, int stage) {
  return program_file(directory, whole.grid.rank_of({0, stage, 0}));
}

[[noreturn]] void refuse_program(const std::string& path, const std::string& reason) {
  throw ConfigError("--run-program", path,
                    reason +
                        "; `garonne plan` with this run file and --program writes Programs "
                        "that fit it");
}

// The stage as its Program cuts the model.
GivenStage read_stage(const std::string& directory, const Setup& whole, int stage) {
  const std::string path = path_of(directory, whole, stage);
  plan::Program program = read_program(path);
  for (const Cut cut : {Cut::BySeconds, Cut::AsDeclared}) {
    Setup setup = setup_of_stage(whole, stage, cut);
    if (plan::model_hash(setup.model.graph) == program.model)
      return {std::move(setup), std::move(program)};
  }
  refuse_program(
      path, whole.config.grid.pipeline == 1
                ? "is of another model, micro-batch or precision"
                : "is of another model, micro-batch or precision, or of a pipeline that is cut "
                  "at other places");
}

void expect_granularity(const std::string& path, const GivenStage& stage) {
  const std::int64_t counted = stage.program.tier(Tier::Device).granularity;
  const std::int64_t wanted = stage.setup.step.granularity;
  if (counted == wanted) return;
  refuse_program(
      path, fmt::format("counts memory in multiples of {} bytes where the device of this run has "
                        "{}",
                        counted, wanted));
}

void expect_states(const std::string& path, const GivenStage& stage) {
  const plan::Program& program = stage.program;
  const plan::ElementBytes& wanted = stage.setup.step.element_bytes;
  const std::vector<StateSpec>& states = stage.setup.step.optimizer_states;
  const std::string& optimizer = stage.setup.config.optimizer.name;
  const std::vector<TensorSums>& tensor_sums = stage.setup.step.tensor_sums;
  const plan::ModelGraph& graph = stage.setup.model.graph;
  for (const plan::Piece& piece : program.pieces) {
    if (piece.states.size() != states.size()) {
      refuse_program(path, fmt::format("has {} states of the optimizer where {} has {}",
                                       piece.states.size(), optimizer, states.size()));
    }
    const MatrixSides sides =
        graph.parameters.at(static_cast<std::size_t>(piece.parameter)).sides();
    std::int64_t has = 0;
    std::int64_t takes = 0;
    for (const plan::Range& sums : piece.sums) has += sums.elements;
    for (const TensorSums& sums : tensor_sums) takes += sums.count(sides);
    if (has != takes || piece.sums.size() != tensor_sums.size()) {
      refuse_program(path, fmt::format("sums {} numbers of a parameter where {} takes {}", has,
                                       optimizer, takes));
    }
    if ((piece.compute_copy.buffer >= 0) != (wanted.master > 0))
      refuse_program(path, "is of another train.precision");
  }
  const auto bytes_of = [&](plan::BufferKind kind) -> std::int64_t {
    switch (kind) {
      case plan::BufferKind::Parameter:
      case plan::BufferKind::GatheredParameter:
        return wanted.parameter;
      case plan::BufferKind::MasterParameter:
        return wanted.master;
      case plan::BufferKind::Gradient:
        return wanted.gradient;
      default:
        return 0;
    }
  };
  for (const plan::Buffer& buffer : program.buffers) {
    const std::int64_t bytes = bytes_of(buffer.kind);
    if (bytes > 0 && buffer.element_bytes != bytes)
      refuse_program(path, "is of another train.precision");
  }
  for (const plan::Piece& piece : program.pieces) {
    for (std::size_t k = 0; k < states.size(); ++k) {
      const auto id = static_cast<std::size_t>(piece.states[k].buffer);
      if (plan::blocks_of(program, k) == states[k].blocks &&
          program.buffers.at(id).element_bytes == states[k].element_bytes(wanted.state))
        continue;
      refuse_program(path, fmt::format("has another {} than {}", states[k].name, optimizer));
    }
  }
}

// A run has the memory of the device, tiers below it where the configuration says so, and sums,
// messages and copies beside what computes.
void expect_tiers(const std::string& path, const GivenStage& stage) {
  const plan::Program& program = stage.program;
  const auto& tiers = stage.setup.below.tiers;
  for (const plan::Buffer& buffer : program.buffers) {
    if (buffer.tier == Tier::Device || tiers.contains(buffer.tier)) continue;
    refuse_program(
        path, fmt::format("has {} on the tier {}, and this run has {}", buffer.name,
                          to_string(buffer.tier),
                          buffer.tier == Tier::Disk ? "no memory.disk" : "no memory.host_budget"));
  }
  for (const auto& [tier, below] : tiers) {
    const std::int64_t peak = plan::replay(program).of(tier).peak_bytes;
    if (peak > 0 && program.tier(tier).granularity != below.granularity) {
      refuse_program(
          path, fmt::format("counts the tier {} in multiples of {} bytes where this run has {}",
                            to_string(tier), program.tier(tier).granularity, below.granularity));
    }
    if (peak > below.budget_bytes) {
      refuse_program(
          path, fmt::format("has a peak of {} B ({}) on the tier {} where the run may take {} B "
                            "({})",
                            peak, format_bytes(peak), to_string(tier), below.budget_bytes,
                            format_bytes(below.budget_bytes)));
    }
  }
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const plan::Instruction& instruction = program.instructions[i];
    const Lane lane = instruction.lane;
    if (is_copy(instruction.operation) && lane_of_copy(instruction.operation) == lane) continue;
    if (instruction.operation == plan::Operation::UpdateHost && lane == Lane::HostCompute) continue;
    if (lane == Lane::Compute || (instruction.channel && instruction.after.empty() &&
                                  (lane == Lane::Collective || lane == Lane::Message)))
      continue;
    refuse_program(
        path, fmt::format("has instruction {}, {}, on the lane {}, and runs have no such work", i,
                          plan::describe(instruction), to_string(lane)));
  }
}

// Of sums of gradients; those of nodes are held against the model.
void expect_wire(const std::string& path, const plan::Instruction& instruction,
                 const plan::StepShape& step) {
  const bool sums = instruction.operation == plan::Operation::AllReduce ||
                    instruction.operation == plan::Operation::ReduceScatter;
  if (!sums || !instruction.channel || instruction.arguments.exchanged >= 0 ||
      instruction.channel->group == plan::GroupAxis::World ||
      instruction.channel->wire == step.gradient_wire)
    return;
  refuse_program(path,
                 fmt::format("has sums of gradients that travel in {} where grid.gradient_wire is "
                             "\"{}\"",
                             instruction.channel->wire ? "bfloat16" : "float32",
                             step.gradient_wire ? "compute" : "float32"));
}

// What does not depend on the others.
void expect_fits(const std::string& path, const GivenStage& stage, std::int64_t budget_bytes) {
  const plan::Program& program = stage.program;
  const plan::StepShape& step = stage.setup.step;
  if (program.micro_batches != step.micro_batches) {
    refuse_program(path,
                   fmt::format("has {} micro-batches where train.global_batch and the grid make {}",
                               program.micro_batches, step.micro_batches));
  }
  const std::int64_t peak = plan::replay(program).peak_bytes;
  plan::prove(program, stage.setup.model.graph);
  if (const std::string fault = fault_of_loads(program); !fault.empty())
    refuse_program(path, fault);
  expect_granularity(path, stage);
  expect_states(path, stage);
  expect_tiers(path, stage);
  const std::int64_t reserved =
      room_for_plan(stage.setup, stage.setup.model.graph, step, budget_bytes).reserved_bytes;
  if (peak + reserved > budget_bytes) {
    refuse_program(path,
                   fmt::format("has a peak of {} B ({}) where memory.budget is {} B ({}){}", peak,
                               format_bytes(peak), budget_bytes, format_bytes(budget_bytes),
                               reserved == 0 ? "" : ", and " + detail_of_copy(reserved)));
  }
  // Programs of one rank would never be heard of by the others.
  std::map<plan::GroupAxis, std::size_t> members;
  for (const auto& instruction : program.instructions) {
    if (instruction.channel)
      members[instruction.channel->group] = instruction.channel->members.size();
    expect_wire(path, instruction, step);
  }
  const GridShape& shape = stage.setup.grid.shape();
  const std::map<plan::GroupAxis, int> wanted = {
      {plan::GroupAxis::Data, shape.data},
      {plan::GroupAxis::Pipeline, shape.pipeline},
      {plan::GroupAxis::Tensor, shape.tensor},
      {plan::GroupAxis::World, stage.setup.grid.ranks()}};
  for (const auto& [group, size] : wanted) {
    const auto found = members.find(group);
    if (found != members.end() && static_cast<int>(found->second) != size) {
      refuse_program(path, fmt::format("is of another grid: its {} group has {} ranks, not {}",
                                       to_string(group), found->second, size));
    }
  }
  if (shape.data > 1 && !members.contains(plan::GroupAxis::Data))
    refuse_program(path, "is of a grid with grid.data = 1");
  plan::check_rank_sums(program, shape);
}

// Every element of every parameter is trained on the ranks of a data group together.
void expect_all_trained(const std::string& path, const GivenStage& stage) {
  const auto& parameters = stage.setup.model.graph.parameters;
  std::vector<std::int64_t> trained(parameters.size(), 0);
  const int ranks = stage.setup.grid.shape().data;
  const int members = plan::in_shards(stage.program) ? ranks : 1;
  for (int member = 0; member < members; ++member) {
    const int rank = stage.setup.grid.rank_of({member, stage.program.coordinates.pipeline, 0});
    for (const plan::Piece& piece : program_of_rank(stage.setup, stage.program, rank).pieces) {
      trained[static_cast<std::size_t>(piece.parameter)] += piece.trained.elements;
    }
  }
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    if (trained[p] != parameters[p].elements)
      refuse_program(path, fmt::format("does not train all of {}", parameters[p].name));
  }
}

// What is wrong with a file is the user's to know.
template <typename Work>
void refuse_illegal(const std::string& path, const Work& work) {
  try {
    work();
  } catch (const plan::ReplayError& error) {
    refuse_program(path, error.what());
  }
}

void replay_all(const std::string& directory, const Setup& whole, std::int64_t budget_bytes) {
  std::vector<GivenStage> stages;
  for (int stage = 0; stage < whole.grid.shape().pipeline; ++stage) {
    stages.push_back(read_stage(directory, whole, stage));
    const std::string path = path_of(directory, whole, stage);
    refuse_illegal(path, [&] { expect_fits(path, stages.back(), budget_bytes); });
    expect_all_trained(path, stages.back());
  }
  const auto program_of = [&](int rank) {
    const GivenStage& stage =
        stages[static_cast<std::size_t>(whole.grid.coordinates_of(rank).pipeline)];
    return program_of_rank(stage.setup, stage.program, rank);
  };
  refuse_illegal(directory, [&] {
    if (replay_ranks(whole.grid, program_of)) return;
    std::vector<plan::Program> programs;
    for (int stage = 0; stage < whole.grid.shape().pipeline; ++stage)
      programs.push_back(program_of(whole.grid.rank_of({0, stage, 0})));
    plan::replay_pipeline(std::move(programs));
  });
}

}  // namespace

Choice given_programs(const std::string& directory, const Setup& whole, std::int64_t budget_bytes,
                      Setup& setup, dist::Session& session) {
  session.agree([&] {
    if (session.rank() == 0) replay_all(directory, whole, budget_bytes);
  });
  Choice choice;
  session.agree([&] {
    GivenStage stage =
        read_stage(directory, whole, whole.grid.coordinates_of(session.rank()).pipeline);
    setup = std::move(stage.setup);
    choice = choice_of_given(setup, std::move(stage.program), budget_bytes);
  });
  expect_same_programs(whole.grid, choice.program, session);
  return choice;
}

}  // namespace garonne::train
