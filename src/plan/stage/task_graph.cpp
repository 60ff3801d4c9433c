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

bool contains(const std::vector<int>& list, int id) {
  return std::find(list.begin(), list.end(), id) != list.end();
}

Pass pass_of(Operation operation) {
  switch (operation) {
    case Operation::Receive:
    case Operation::Backward:
      return Pass::Backward;
    case Operation::BackwardWeight:
      return Pass::BackwardWeight;
    case Operation::BackwardInput:
      return Pass::BackwardInput;
    default:
      return Pass::Forward;
  }
}

// Reads the tasks off a Program that keeps everything.
class TaskGraphReader {
 public:
  TaskGraphReader(const ModelGraph& model, const Program& program, std::int64_t static_bytes)
      : model_(model), program_(program), value_of_(program.buffers.size(), -1) {
    tasks_.static_bytes = static_bytes;
    tasks_.nodes = static_cast<int>(model.nodes.size());
    tasks_.first_backward_task.assign(model.nodes.size(), -1);
  }

  // `bucket_stays`: the gradients of parameters are wanted after the last task.
  void read_values(GradientBuckets buckets, bool bucket_stays) {
    for (std::size_t id = 0; id < program_.buffers.size(); ++id) {
      const Buffer& buffer = program_.buffers[id];
      const bool bucket = buffer.kind == BufferKind::Gradient;
      if (buffer.live_at_start) continue;
      if (buffer.kind == BufferKind::Scalar || (bucket && buckets == GradientBuckets::There)) {
        tasks_.static_bytes += buffer.bytes;
        continue;
      }
      value_of_[id] = static_cast<int>(tasks_.graph.values.size());
      tasks_.graph.values.push_back({buffer.name, buffer.bytes, false, bucket && bucket_stays});
      tasks_.model_value.push_back(-1);
    }
  }

  void read(const Instruction& instruction) {
    const Operation operation = instruction.operation;
    if (operation == Operation::Load) read_load(instruction);
    // A stage that is looked at alone has messages only where a node hands over.
    const bool backward = is_backward(operation) || operation == Operation::Receive;
    const bool forward = is_forward(operation) || operation == Operation::Send;
    if (backward || forward) read_task(instruction, backward);
  }

  TaskGraph take() { return std::move(tasks_); }

 private:
  void read_load(const Instruction& instruction) {
    for (const LoadedValue& loaded : instruction.arguments.loaded) {
      const int value = value_of_[index(loaded.buffer)];
      tasks_.graph.values[index(value)].live_at_start = true;
      tasks_.model_value[index(value)] = loaded.value;
    }
  }

  void read_task(const Instruction& instruction, bool backward) {
    Task task;
    task.name = describe(instruction);
    task.once = backward || instruction.operation == Operation::Send;
    for (const int buffer : instruction.reads) {
      const int value = value_of_[index(buffer)];
      if (value < 0) continue;
      std::vector<int>& list = contains(instruction.writes, buffer) ? task.updates : task.reads;
      if (!contains(list, value)) list.push_back(value);
    }
    task.options.push_back(option_of("keep", instruction, value_of_));
    int& first_backward = tasks_.first_backward_task[index(instruction.node_index)];
    if (!backward) {
      add_discard(instruction, task);
    } else if (first_backward < 0) {
      first_backward = static_cast<int>(tasks_.graph.tasks.size());
    }
    tasks_.step_of_task.push_back({instruction.node_index, pass_of(instruction.operation), false});
    tasks_.graph.tasks.push_back(std::move(task));
  }

  // The option that makes no record, where that is another one.
  void add_discard(const Instruction& instruction, Task& task) {
    const NodeSpec& node = model_.nodes[index(instruction.node_index)];
    const int output = value_of_[index(instruction.arguments.output)];
    tasks_.model_value[index(output)] = node.output;
    const bool differs = node.forward.seconds != node.forward_keep.seconds ||
                         node.forward.transient_bytes != node.forward_keep.transient_bytes;
    if (!differs && node.private_slot_bytes.empty()) return;
    task.options.push_back(
        {"discard", {output}, node.forward.seconds, node.forward.transient_bytes});
  }

  const ModelGraph& model_;
  const Program& program_;
  std::vector<int> value_of_;  // by buffer; -1 for none
  TaskGraph tasks_;
};

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
  TaskGraphReader reader(model, program, static_bytes(model, step));
  reader.read_values(buckets, stays);
  for (const Instruction& instruction : program.instructions) reader.read(instruction);
  return reader.take();
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
