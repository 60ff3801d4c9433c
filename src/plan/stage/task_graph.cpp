#include "plan/stage/task_graph.hpp"

#include <algorithm>
#include <set>

#include "base/error.hpp"

namespace garonne::plan {
namespace {

std::size_t index(int id) {
  return static_cast<std::size_t>(id);
}

TaskOption option_of(const std::string& name, const Instruction& instruction,
                     const std::vector<int>& value_of) {
  TaskOption option;
  option.name = name;
  option.seconds = instruction.seconds;
  option.transient_bytes = instruction.transient_bytes;
  for (const int buffer : instruction.writes) {
    const bool updated = std::find(instruction.reads.begin(), instruction.reads.end(), buffer) !=
                         instruction.reads.end();
    if (!updated && value_of[index(buffer)] >= 0) option.makes.push_back(value_of[index(buffer)]);
  }
  return option;
}

}  // namespace

// Read off the Program that keeps everything, so that aliases of gradients and additions in place
// are laid out in one place only.
TaskGraph make_task_graph(const ModelGraph& model, const StepShape& step, GradientBuckets buckets) {
  StepShape alone = step;
  alone.micro_batches = 1;
  alone.data_group = alone.world_group = {};
  alone.pipeline = {};
  // A bucket of gradients in shards is gone once it is reduced.
  const bool stays = step.zero < 2 || step.data_group.size() < 2 ||
                     (step.micro_batches > 1 && !step.reduce_each_micro_batch);
  const Program program = make_training_program(
      model, alone, same_for_all(recompute_on_demand(model, keep_everything(model)), 1));

  TaskGraph tasks;
  tasks.static_bytes = static_bytes(model, step);
  tasks.nodes = static_cast<int>(model.nodes.size());
  tasks.first_backward_task.assign(model.nodes.size(), -1);
  std::vector<int> value_of(program.buffers.size(), -1);
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    const bool bucket = buffer.kind == BufferKind::Gradient;
    if (buffer.live_at_start) continue;
    if (buffer.kind == BufferKind::Scalar || (bucket && buckets == GradientBuckets::There)) {
      tasks.static_bytes += buffer.bytes;
      continue;
    }
    value_of[id] = static_cast<int>(tasks.graph.values.size());
    tasks.graph.values.push_back({buffer.name, buffer.bytes, false, bucket && stays});
    tasks.model_value.push_back(-1);
  }

  for (const auto& instruction : program.instructions) {
    if (instruction.operation == Operation::Load) {
      for (const LoadedValue& loaded : instruction.arguments.loaded) {
        const int value = value_of[index(loaded.buffer)];
        tasks.graph.values[index(value)].live_at_start = true;
        tasks.model_value[index(value)] = loaded.value;
      }
      continue;
    }
    // A stage that is looked at alone has messages only where a node hands over.
    const bool backward =
        is_backward(instruction.operation) || instruction.operation == Operation::Receive;
    const bool forward =
        is_forward(instruction.operation) || instruction.operation == Operation::Send;
    if (!backward && !forward) continue;
    Task task;
    task.name = describe(instruction);
    task.once = backward || instruction.operation == Operation::Send;
    for (const int buffer : instruction.reads) {
      const int value = value_of[index(buffer)];
      if (value < 0) continue;
      const bool updated = std::find(instruction.writes.begin(), instruction.writes.end(),
                                     buffer) != instruction.writes.end();
      std::vector<int>& list = updated ? task.updates : task.reads;
      if (std::find(list.begin(), list.end(), value) == list.end()) list.push_back(value);
    }
    task.options.push_back(option_of("keep", instruction, value_of));
    if (forward) {
      const NodeSpec& node = model.nodes[index(instruction.node_index)];
      const int output = value_of[index(instruction.arguments.output)];
      tasks.model_value[index(output)] = node.output;
      const bool differs = node.forward.seconds != node.forward_keep.seconds ||
                           node.forward.transient_bytes != node.forward_keep.transient_bytes;
      if (differs || !node.private_slot_bytes.empty()) {
        TaskOption discard{"discard", {output}, node.forward.seconds, node.forward.transient_bytes};
        task.options.push_back(std::move(discard));
      }
    }
    const Pass pass = forward                                              ? Pass::Forward
                      : instruction.operation == Operation::Receive        ? Pass::Backward
                      : instruction.operation == Operation::Backward       ? Pass::Backward
                      : instruction.operation == Operation::BackwardWeight ? Pass::BackwardWeight
                                                                           : Pass::BackwardInput;
    if (backward && tasks.first_backward_task[index(instruction.node_index)] < 0) {
      tasks.first_backward_task[index(instruction.node_index)] =
          static_cast<int>(tasks.graph.tasks.size());
    }
    tasks.step_of_task.push_back({instruction.node_index, pass, false});
    tasks.graph.tasks.push_back(std::move(task));
  }
  return tasks;
}

int TaskGraph::task_of(const NodeStep& step) const {
  if (step.forward()) return step.node;
  const int first = first_backward_task[index(step.node)];
  return step_of_task[index(first)].pass == step.pass ? first : first + 1;
}

TaskSchedule to_task_schedule(const TaskGraph& tasks, const NodeSchedule& schedule) {
  TaskSchedule result;
  result.reserve(schedule.size());
  for (const NodeStep& step : schedule) {
    const int task = tasks.task_of(step);
    const bool discards =
        step.forward() && !step.keep && tasks.graph.tasks[index(task)].options.size() > 1;
    result.push_back({task, discards ? 1 : 0});
  }
  return result;
}

NodeSchedule to_node_schedule(const ModelGraph& model, const TaskGraph& tasks,
                              const TaskSchedule& schedule) {
  NodeSchedule result;
  result.reserve(schedule.size());
  for (const TaskStep& step : schedule) result.push_back(tasks.step_of_task[index(step.task)]);
  mark_kept_records(model, result);
  return result;
}

}  // namespace garonne::plan
