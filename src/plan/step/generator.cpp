#include "plan/step/generator.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/step/divide_passes.hpp"
#include "plan/step/launches.hpp"
#include "plan/step/program_builder.hpp"
#include "plan/step/rank_program.hpp"
#include "plan/step/step_writer.hpp"
#include "plan/step/trained_layout.hpp"
#include "plan/step/zero3_gathers.hpp"

namespace garonne::plan {

Program make_training_program(const ModelGraph& graph, const StepShape& step,
                              const StepSchedule& schedule) {
  Program program = make_undivided_program(graph, step, schedule);
  divide_passes(program, graph);
  add_launches(program, graph, step);
  return program;
}

Program make_undivided_program(const ModelGraph& graph, const StepShape& step,
                               const StepSchedule& schedule) {
  check_model_graph(graph);
  expect(std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [&](const NodeSpec& node) { return graph.starts_backward(node); }),
         "a training Program needs a loss, or a stage that follows");
  expect(schedule.of_micro_batch.size() == as_index(step.micro_batches),
         "one schedule a micro-batch");
  ProgramBuilder builder(graph, step);
  builder.make_buckets();
  builder.add_parameters();
  builder.add_gradients();
  write_step(builder, graph, step, schedule);
  builder.finish_step();
  const bool gathers = builder.in_shards() && step.zero == 3;
  Program program = builder.take();
  if (gathers) place_gathers(program, step);
  assign_frees(program);
  place_shards(program, graph, {});
  return program;
}

Program make_forward_program(const ModelGraph& graph, const StepShape& step, int output) {
  check_model_graph(graph);
  ProgramBuilder builder(graph, step);
  if (builder.in_shards()) builder.make_buckets();
  builder.add_parameters();
  write_forward(builder, graph, step, output);
  const bool gathers = builder.in_shards() && step.zero == 3;
  Program program = builder.take();
  if (gathers) place_gathers(program, step);
  assign_frees(program);
  divide_passes(program, graph);
  add_launches(program, graph, step);
  return program;
}

std::int64_t static_bytes(const ModelGraph& graph, const StepShape& step) {
  const std::vector<int> nodes = completing_nodes(graph);
  std::vector<TrainedParameter> completed;
  for (const int p : completion_order(nodes)) {
    const int node = nodes[as_index(p)];
    completed.push_back(trained_parameter(graph.parameters[as_index(p)],
                                          node < 0 ? -1 : graph.nodes[as_index(node)].block, step));
  }
  return static_bytes(completed, step);
}

void assign_frees(Program& program) {
  std::vector<int> last(program.buffers.size(), -1);
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const Instruction& instruction = program.instructions[as_index(i)];
    for (const int buffer : instruction.reads) {
      if (buffer < 0) expect(false, describe(instruction) + " reads what is not there");
      last[as_index(buffer)] = i;
    }
    for (const int buffer : instruction.writes) last[as_index(buffer)] = i;
    if (instruction.completes < 0) continue;
    const Instruction& waited = program.instructions[as_index(instruction.completes)];
    for (const int buffer : waited.reads) last[as_index(buffer)] = i;
    for (const int buffer : waited.writes) last[as_index(buffer)] = i;
  }
  for (std::size_t buffer = 0; buffer < last.size(); ++buffer) {
    if (last[buffer] >= 0 && !program.buffers[buffer].live_at_end) {
      program.instructions[as_index(last[buffer])].frees.push_back(static_cast<int>(buffer));
    }
  }
}

}  // namespace garonne::plan
