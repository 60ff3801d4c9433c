#include "plan/stage/task_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/contains.hpp"
#include "base/error.hpp"
#include "base/index.hpp"

namespace garonne::plan {
namespace {

TaskOption option_of(const std::string& name, const Instruction& instruction,
                     const std::vector<int>& value_of) {
  TaskOption option;
  option.name = name;
  option.seconds = instruction.seconds;
  option.transient_bytes = instruction.transient_bytes;
  for (const int buffer : instruction.writes) {
    const bool updated = std::find(instruction.reads.begin(), instruction.reads.end(), buffer) !=
                         instruction.reads.end();
    if (!updated && value_of[as_index(buffer)] >= 0)
      option.makes.push_back(value_of[as_index(buffer)]);
  }
  return option;
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
      : model_(model),
        program_(program),
        value_of_(program.buffers.size(), -1),
        value_of_model_(model.values.size(), -1),
        slots_(model.nodes.size()) {
    tasks_.static_bytes = static_bytes;
    tasks_.nodes = static_cast<int>(model.nodes.size());
    tasks_.first_backward_task.assign(model.nodes.size(), -1);
    for (const NodeSpec& node : model.nodes) tasks_.keep_options.push_back(exact_options(node));
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
      value_of_[id] = add_value({buffer.name, buffer.bytes, false, bucket && bucket_stays});
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
  int add_value(TaskValue value) {
    tasks_.graph.values.push_back(std::move(value));
    tasks_.model_value.push_back(-1);
    return static_cast<int>(tasks_.graph.values.size()) - 1;
  }

  void holds(int value, int model_value) {
    tasks_.model_value[as_index(value)] = model_value;
    value_of_model_[as_index(model_value)] = value;
  }

  void read_load(const Instruction& instruction) {
    for (const LoadedValue& loaded : instruction.arguments.loaded) {
      const int value = value_of_[as_index(loaded.buffer)];
      tasks_.graph.values[as_index(value)].live_at_start = true;
      holds(value, loaded.value);
    }
  }

  void read_task(const Instruction& instruction, bool backward) {
    Task task;
    task.name = describe(instruction);
    task.once = backward || instruction.operation == Operation::Send;
    for (const int buffer : instruction.reads) {
      const int value = value_of_[as_index(buffer)];
      if (value < 0) continue;
      std::vector<int>& list = contains(instruction.writes, buffer) ? task.updates : task.reads;
      if (!contains(list, value)) list.push_back(value);
    }
    task.options.push_back(option_of("keep", instruction, value_of_));
    int& first_backward = tasks_.first_backward_task[as_index(instruction.node_index)];
    if (!backward) {
      add_forward_options(instruction, task);
    } else {
      if (first_backward < 0) first_backward = static_cast<int>(tasks_.graph.tasks.size());
      if (instruction.operation != Operation::BackwardInput)
        add_backward_options(instruction, task);
    }
    tasks_.step_of_task.push_back({instruction.node_index, pass_of(instruction.operation)});
    tasks_.graph.tasks.push_back(std::move(task));
  }

  // The option that makes no record, where that is another one, and those of further ways.
  void add_forward_options(const Instruction& instruction, Task& task) {
    const int n = instruction.node_index;
    const NodeSpec& node = model_.nodes[as_index(n)];
    const std::vector<int>& ways = tasks_.keep_options[as_index(n)];
    const int output = value_of_[as_index(instruction.arguments.output)];
    holds(output, node.output);
    const bool differs = node.forward.seconds != node.forward_keep.seconds ||
                         node.forward.transient_bytes != node.forward_keep.transient_bytes;
    if (!differs && node.private_slot_bytes.empty() && ways.size() == 1) return;
    task.options.push_back(
        {"discard", {output}, node.forward.seconds, node.forward.transient_bytes});
    for (std::size_t w = 1; w < ways.size(); ++w) {
      const KeepOption& kept = node.keep_option(ways[w]);
      TaskOption option{
          kept.name, {output}, kept.forward_keep.seconds, kept.forward_keep.transient_bytes};
      std::vector<int>& slots = slots_[as_index(n)].emplace_back();
      for (const std::int64_t bytes : kept.private_slot_bytes) {
        const std::string name =
            fmt::format("{}.{}{}#{}", node.name, kept.name, slots.size(), instruction.micro_batch);
        slots.push_back(add_value({name, bytes}));
      }
      option.makes.insert(option.makes.end(), slots.begin(), slots.end());
      task.options.push_back(std::move(option));
    }
  }

  // What not all ways read is read by an option instead of by the task.
  void add_backward_options(const Instruction& instruction, Task& task) const {
    const int n = instruction.node_index;
    const NodeSpec& node = model_.nodes[as_index(n)];
    const std::vector<int>& ways = tasks_.keep_options[as_index(n)];
    if (ways.size() == 1) return;
    const auto pinned_by_all = [&](int value) {
      return std::all_of(ways.begin(), ways.end(), [&](int way) {
        return contains(node.keep_option(way).pinned_values, value);
      });
    };
    const bool in_place = std::any_of(
        instruction.arguments.placements.begin(), instruction.arguments.placements.end(),
        [](Placement one) { return one == Placement::Overwrite || one == Placement::AddInPlace; });
    for (std::size_t w = 0; w < ways.size(); ++w) {
      const KeepOption& kept = node.keep_option(ways[w]);
      if (w > 0) {
        const bool weights = instruction.operation == Operation::BackwardWeight;
        const OperationCost& cost = weights ? kept.backward_weight : kept.backward;
        TaskOption option{kept.name, task.options[0].makes, cost.seconds, cost.transient_bytes};
        if (in_place && kept.in_place_transient_bytes)
          option.transient_bytes = *kept.in_place_transient_bytes;
        option.reads = slots_[as_index(n)][w - 1];
        task.options.push_back(std::move(option));
      } else {
        for (const int buffer : instruction.arguments.record)
          task.options[0].reads.push_back(value_of_[as_index(buffer)]);
      }
      for (const int value : kept.pinned_values) {
        if (!pinned_by_all(value))
          task.options[w].reads.push_back(value_of_model_[as_index(value)]);
      }
    }
    std::erase_if(task.reads, [&](int value) { return contains(task.options[0].reads, value); });
  }

  const ModelGraph& model_;
  const Program& program_;
  std::vector<int> value_of_;                         // by buffer; -1 for none
  std::vector<int> value_of_model_;                   // by value of the model; -1 for none
  std::vector<std::vector<std::vector<int>>> slots_;  // by node and further way
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
                     (step.micro_batches > 1 && !step.reduces_each_micro_batch());
  const Program program = make_undivided_program(
      model, alone, same_for_all(recompute_on_demand(model, keep_everything(model)), 1));
  TaskGraphReader reader(model, program, static_bytes(model, step));
  reader.read_values(buckets, stays);
  for (const Instruction& instruction : program.instructions) reader.read(instruction);
  return reader.take();
}

int TaskGraph::task_of(const NodeStep& step) const {
  if (step.forward()) return step.node;
  const int first = first_backward_task[as_index(step.node)];
  return step_of_task[as_index(first)].pass == step.pass ? first : first + 1;
}

TaskSchedule to_task_schedule(const TaskGraph& tasks, const NodeSchedule& schedule) {
  TaskSchedule result;
  result.reserve(schedule.size());
  std::vector<int> way(as_index(tasks.nodes), 0);  // by node, into keep_options
  for (const NodeStep& step : schedule) {
    const int task = tasks.task_of(step);
    const int options = static_cast<int>(tasks.graph.tasks[as_index(task)].options.size());
    const std::vector<int>& ways = tasks.keep_options[as_index(step.node)];
    int option = std::min(way[as_index(step.node)], options - 1);
    if (step.forward() && !step.keeps()) option = std::min(1, options - 1);
    if (step.keeps()) {
      const auto found = std::find(ways.begin(), ways.end(), step.option);
      expect(found != ways.end(), "a task graph has no option for a way to be kept");
      const int number = static_cast<int>(found - ways.begin());
      way[as_index(step.node)] = number;
      option = number == 0 ? 0 : number + 1;
    }
    result.push_back({task, option});
  }
  return result;
}

NodeSchedule to_node_schedule(const ModelGraph& model, const TaskGraph& tasks,
                              const TaskSchedule& schedule) {
  NodeSchedule result;
  result.reserve(schedule.size());
  std::vector<int> keep_option(model.nodes.size(), 0);
  for (const TaskStep& step : schedule) {
    const NodeStep& as_node = tasks.step_of_task[as_index(step.task)];
    const bool chooses = tasks.first_backward_task[as_index(as_node.node)] == step.task &&
                         as_node.pass != Pass::BackwardInput;
    if (chooses && step.option > 0)
      keep_option[as_index(as_node.node)] =
          tasks.keep_options[as_index(as_node.node)][as_index(step.option)];
    result.push_back(as_node);
  }
  mark_kept_records(keep_option, result);
  return result;
}

}  // namespace garonne::plan
