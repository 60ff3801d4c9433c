#include "plan/step/program_builder.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/step/trained_layout.hpp"
#include "plan/step/workspace_buffer.hpp"

namespace garonne::plan {

ProgramBuilder::ProgramBuilder(const ModelGraph& graph, const StepShape& step)
    : graph_(graph),
      step_(step),
      parameters_(graph.parameters.size()),
      window_(step.reduction_bytes) {
  program_.micro_batches = step.micro_batches;
  program_.tier(Tier::Device).granularity = step.granularity;
  for (const StateSpec& state : step.optimizer_states)
    program_.state_blocks.push_back(state.blocks);
  const auto& blocks = program_.state_blocks;
  if (std::all_of(blocks.begin(), blocks.end(), [](const auto& b) { return b.elementwise(); }))
    program_.state_blocks.clear();
  if (std::any_of(step.tensor_sums.begin(), step.tensor_sums.end(),
                  [](const TensorSums& sums) { return sums.sides; }))
    program_.tensor_sums = step.tensor_sums;
}

int ProgramBuilder::new_buffer(std::string name, BufferKind kind, std::int64_t bytes) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.kind = kind;
  buffer.bytes = round_up(bytes, program_.tier(buffer.tier).granularity);
  program_.buffers.push_back(std::move(buffer));
  return static_cast<int>(program_.buffers.size()) - 1;
}

void ProgramBuilder::add(Instruction instruction) {
  program_.instructions.push_back(std::move(instruction));
}

int ProgramBuilder::new_range(const std::string& name, BufferKind kind, std::int64_t elements,
                              std::int64_t element_bytes) {
  const int id = new_buffer(name, kind, elements * element_bytes);
  program_.buffers[as_index(id)].elements = elements;
  program_.buffers[as_index(id)].element_bytes = element_bytes;
  return id;
}

int ProgramBuilder::add_static(const std::string& name, BufferKind kind, std::int64_t elements,
                               std::int64_t element_bytes) {
  const int id = new_range(name, kind, elements, element_bytes);
  program_.buffers[as_index(id)].live_at_start = true;
  program_.buffers[as_index(id)].live_at_end = true;
  return id;
}

void ProgramBuilder::add_parameters() {
  if (in_shards()) {
    add_flat_parameters();
    return add_workspaces();
  }
  const ElementBytes& bytes = step_.element_bytes;
  for (std::size_t p = 0; p < graph_.parameters.size(); ++p) {
    const ParameterSpec& parameter = graph_.parameters[p];
    const std::int64_t elements = parameter.elements;
    BuiltParameter& built = parameters_[p];
    built.range = {add_static(parameter.name, BufferKind::Parameter, elements, bytes.parameter), 0,
                   elements};
    if (bytes.master > 0) {
      built.master = add_static(parameter.name + ".master", BufferKind::MasterParameter, elements,
                                bytes.master);
    }
    for (const StateSpec& state : step_.optimizer_states) {
      built.states.push_back(add_static(
          parameter.name + "." + state.name, BufferKind::OptimizerState,
          state.blocks.count(elements, parameter.sides()), state.element_bytes(bytes.state)));
    }
  }
  add_workspaces();
}

void ProgramBuilder::add_workspaces() {
  for (const LibraryWorkspace& workspace : step_.workspaces) {
    const int id =
        new_buffer(workspace_buffer(workspace.name), BufferKind::Workspace, workspace.bytes);
    program_.buffers[as_index(id)].live_at_start = true;
    program_.buffers[as_index(id)].live_at_end = true;
  }
}

void ProgramBuilder::add_flat_parameters() {
  const ElementBytes& bytes = step_.element_bytes;
  for (std::size_t number = 0; number < program_.buckets.size(); ++number) {
    Bucket& bucket = program_.buckets[number];
    const std::string name = bucket_name(bucket);
    BucketShard& shard = bucket.shard;
    shard.elements = shard_elements(bucket.elements, step_);
    const std::int64_t padded = padded_elements(bucket);
    const bool whole = step_.zero < 3;
    shard.parameter = add_static(whole ? name : name + ".shard", BufferKind::Parameter,
                                 whole ? padded : shard.elements, bytes.parameter);
    if (bytes.master > 0) {
      shard.master = add_static(name + ".master.shard", BufferKind::MasterParameter, shard.elements,
                                bytes.master);
    }
    for (const StateSpec& state : step_.optimizer_states) {
      const bool of_whole = state.blocks.of_whole();
      shard.states.push_back(add_static(name + "." + state.name + (of_whole ? "" : ".shard"),
                                        BufferKind::OptimizerState,
                                        state.blocks.count(shard.elements, buckets_[number].sides),
                                        state.element_bytes(bytes.state)));
    }
    if (!whole) {
      shard.gathered =
          new_range(name + ".gathered", BufferKind::GatheredParameter, padded, bytes.parameter);
    }
    for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
      const int p = bucket.parameters[k];
      parameters_[as_index(p)].range = {whole ? shard.parameter : shard.gathered, bucket.offsets[k],
                                        graph_.parameters[as_index(p)].elements};
    }
  }
}

std::int64_t ProgramBuilder::padded_elements(const Bucket& bucket) const {
  return bucket.shard.elements == 0
             ? bucket.elements
             : bucket.shard.elements * static_cast<std::int64_t>(step_.data_group.size());
}

std::string ProgramBuilder::bucket_name(const Bucket& bucket) const {
  const std::string& first = graph_.parameters[as_index(bucket.parameters.front())].name;
  return bucket.parameters.size() == 1 ? first
                                       : fmt::format("{}+{}", first, bucket.parameters.size() - 1);
}

void ProgramBuilder::make_buckets() {
  const std::vector<int> nodes = completing_nodes(graph_);
  for (std::size_t p = 0; p < nodes.size(); ++p)
    expect(nodes[p] >= 0, graph_.parameters[p].name + " is used by no node");
  const std::vector<int> order = completion_order(nodes);
  std::vector<TrainedParameter> completed;
  for (const int p : order) {
    completed.push_back(trained_parameter(graph_.parameters[as_index(p)],
                                          graph_.nodes[as_index(nodes[as_index(p)])].block, step_));
  }
  for (const TrainedBucket& cut : cut_into_buckets(completed, step_)) {
    Bucket bucket;
    for (const int member : cut.members) {
      const int p = order[as_index(member)];
      parameters_[as_index(p)].bucket = static_cast<int>(program_.buckets.size());
      parameters_[as_index(p)].offset = bucket.elements;
      bucket.parameters.push_back(p);
      bucket.offsets.push_back(bucket.elements);
      bucket.elements += graph_.parameters[as_index(p)].elements;
    }
    program_.buckets.push_back(std::move(bucket));
    buckets_.emplace_back().sides = cut.sides;
  }
}

void ProgramBuilder::add_gradients() {
  const std::int64_t bytes = step_.element_bytes.gradient;
  for (auto& bucket : program_.buckets) {
    const std::string& first = graph_.parameters[as_index(bucket.parameters.front())].name;
    const std::string name =
        bucket.parameters.size() == 1
            ? first + ".gradient"
            : fmt::format("{}.gradient+{}", first, bucket.parameters.size() - 1);
    bucket.buffer = new_range(name, BufferKind::Gradient, padded_elements(bucket), bytes);
    if (in_shards() && step_.zero >= 2) {
      bucket.shard.gradient =
          new_range(name + ".shard", BufferKind::Gradient, bucket.shard.elements, bytes);
    }
  }
  for (const auto& node : graph_.nodes) {
    weights_to_come_.push_back(micro_batches_of(node.chunk));
    if (!graph_.has_backward(node)) continue;
    for (const int p : node.parameters) ++buckets_[as_index(parameters_[as_index(p)].bucket)].uses;
  }
  for (GradientBucket& gradients : buckets_) gradients.uses_to_come = gradients.uses;
  loss_sum_ = new_range("step_sums", BufferKind::Scalar, 2, scalar_bytes);
}

int ProgramBuilder::micro_batches_of(int chunk) const {
  const auto& order = step_.pipeline.order;
  if (order.empty()) return step_.micro_batches;
  return static_cast<int>(std::count_if(order.begin(), order.end(), [&](const auto& operation) {
    return operation.chunk == chunk && operation.work == PipelineWork::Forward;
  }));
}

GradientTarget ProgramBuilder::target_of(int parameter, Instruction& instruction) {
  BuiltParameter& built = parameters_.at(as_index(parameter));
  GradientBucket& gradients = buckets_.at(as_index(built.bucket));
  if (gradients.state == BucketState::Reduced) renew_buffer(as_index(built.bucket));
  const Bucket& bucket = program_.buckets[as_index(built.bucket)];
  const int buffer = bucket.buffer;
  const bool empty = gradients.state == BucketState::Empty;
  expect(!empty || !built.written, "a gradient is added to in a bucket that is empty");
  // A node may write several gradients into one bucket: it is listed once.
  if (std::find(instruction.writes.begin(), instruction.writes.end(), buffer) ==
      instruction.writes.end()) {
    if (!empty) instruction.reads.push_back(buffer);
    instruction.writes.push_back(buffer);
  }
  const std::int64_t padding = padded_elements(bucket) - bucket.elements;
  if (empty && padding > 0)
    instruction.arguments.zeroed.push_back({buffer, bucket.elements, padding});
  gradients.state = BucketState::Summing;
  GradientTarget target{{buffer, built.offset, graph_.parameters[as_index(parameter)].elements},
                        built.written,
                        parameter};
  built.written = true;
  return target;
}

void ProgramBuilder::hand_over_buffer(std::size_t number) {
  GradientBucket& gradients = buckets_[number];
  expect(gradients.state == BucketState::Summing, "a bucket is reduced that has no sum");
  gradients.state = BucketState::Reduced;
  for (const int p : program_.buckets[number].parameters) parameters_[as_index(p)].written = false;
}

void ProgramBuilder::renew_buffer(std::size_t number) {
  GradientBucket& gradients = buckets_[number];
  expect(gradients.state == BucketState::Reduced, "a bucket gets a buffer beside its own");
  Bucket& bucket = program_.buckets[number];
  const Buffer reduced = program_.buffers[as_index(bucket.buffer)];
  bucket.buffer =
      new_range(reduced.name, BufferKind::Gradient, reduced.elements, reduced.element_bytes);
  gradients.state = BucketState::Empty;
}

bool ProgramBuilder::is_tied(const Bucket& bucket) const {
  return graph_.parameters[as_index(bucket.parameters.front())].tied;
}

bool ProgramBuilder::sums_over_tensor(int parameter) const {
  return step_.tensor_group.size() > 1 && graph_.parameters[as_index(parameter)].sums_over_tensor;
}

}  // namespace garonne::plan
