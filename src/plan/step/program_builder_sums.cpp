// Of the builder: collectives over gradients, and what each waits for.
#include <utility>

#include "base/bytes.hpp"
#include "base/collective_bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/step/program_builder.hpp"

namespace garonne::plan {

void ProgramBuilder::set_collective(const NodeCollective& collective, Instruction& instruction) {
  if (collective.kind.empty()) return;
  expect(step_.tensor_group.size() > 1, instruction.node + " has no tensor group to meet");
  instruction.channel = Channel{
      collective.kind,  GroupAxis::Tensor, step_.tensor_group, -1, next_tag(GroupAxis::Tensor),
      collective.bytes, collective.wire};
}

bool ProgramBuilder::scatters(const ValueSpec& value) const {
  const auto ranks = static_cast<std::int64_t>(step_.tensor_group.size());
  expect(step_.message_form != MessageForm::Auto, "whether messages are scattered is not decided");
  return step_.message_form == MessageForm::Scattered && ranks > 1 && value.replicated &&
         value.elements() % ranks == 0;
}

Range ProgramBuilder::part_of_message(int buffer, const ValueSpec& value) {
  Buffer& whole = program_.buffers.at(as_index(buffer));
  whole.elements = value.elements();
  whole.element_bytes = number_bytes(value.type);
  return {buffer, 0, whole.elements / static_cast<std::int64_t>(step_.tensor_group.size())};
}

void ProgramBuilder::set_gather_over_tensor(int buffer, Instruction& instruction) {
  const Buffer& whole = program_.buffers.at(as_index(buffer));
  const std::int64_t bytes = whole.elements * whole.element_bytes;
  const auto ranks = static_cast<std::int64_t>(step_.tensor_group.size());
  instruction.arguments.inputs = instruction.reads = instruction.writes = {buffer};
  instruction.arguments.output = buffer;
  instruction.seconds = collective_seconds("all-gather", bytes, ranks, step_.links.tensor);
  instruction.channel = Channel{"all-gather", GroupAxis::Tensor,           step_.tensor_group,
                                -1,           next_tag(GroupAxis::Tensor), bytes};
}

void ProgramBuilder::finished_weights(int n, int micro_batch) {
  const bool each = step_.reduces_each_micro_batch();
  expect(each || weights_to_come_[as_index(n)] > 0,
         "weights have more backwards than micro-batches");
  if (!each && --weights_to_come_[as_index(n)] > 0) return;
  for (const int p : graph_.nodes[as_index(n)].parameters) {
    const int number = parameters_[as_index(p)].bucket;
    const Bucket& bucket = program_.buckets[as_index(number)];
    GradientBucket& gradients = buckets_[as_index(number)];
    expect(gradients.state == BucketState::Summing, "weights are finished that have no gradient");
    if (--gradients.uses_to_come > 0) continue;
    gradients.uses_to_come = gradients.uses;
    // The two copies are summed when both stages are done.
    if (is_tied(bucket)) continue;
    window_.completed_bucket();
    const bool tensor = sums_over_tensor(bucket.parameters.front());
    if (tensor) to_come_.push_back({number, micro_batch, GroupAxis::Tensor, false});
    if (reduces()) to_come_.push_back({number, micro_batch, GroupAxis::Data, tensor});
  }
  submit_reductions(!window_.waits_held());
}

void ProgramBuilder::hold_waits_for_reductions() {
  // Else the next micro-batch would add to what is still to be reduced.
  if (!step_.reduces_each_micro_batch()) window_.hold_waits();
}

void ProgramBuilder::allow_waits_for_reductions() {
  window_.allow_waits();
  submit_reductions(false);
}

std::int64_t ProgramBuilder::held_bytes(const Reduction& reduction) const {
  const Bucket& bucket = program_.buckets[as_index(reduction.bucket)];
  const bool data = reduction.axis == GroupAxis::Data;
  const auto& members = data ? step_.data_group : step_.tensor_group;
  const std::int64_t elements = data ? padded_elements(bucket) : bucket.elements;
  const std::int64_t staging =
      round_up(all_reduce_staging_bytes(elements, step_.element_bytes.gradient,
                                        static_cast<std::int64_t>(members.size())),
               step_.granularity);
  const bool gradient_goes = data && in_shards() && step_.zero >= 2;
  return staging + (gradient_goes ? program_.buffers[as_index(bucket.buffer)].bytes : 0);
}

void ProgramBuilder::make_room(std::int64_t held_bytes) {
  while (!window_.has_room(held_bytes)) wait_for_reduction(window_.oldest());
}

// In the order of the buckets, which is the same on all members. Without waits those stay behind
// for which there is no room, and those that add to a sum that has not been waited for.
void ProgramBuilder::submit_reductions(bool may_wait) {
  // Behind reductions the gathers that the backward waits for would queue.
  if (window_.waits_held() && in_shards() && step_.zero == 3) return;
  std::vector<Reduction> stay;
  for (const Reduction& next : std::exchange(to_come_, {})) {
    if (may_wait && next.after_tensor) wait_for_all_reductions();
    const bool must_wait = !may_wait && (!window_.has_room(held_bytes(next)) ||
                                         (next.after_tensor && !window_.empty()));
    if (must_wait) {
      stay.push_back(next);
    } else {
      reduce(next);
    }
  }
  to_come_ = std::move(stay);
}

void ProgramBuilder::reduce(const Reduction& reduction) {
  if (reduction.axis == GroupAxis::Data && in_shards())
    return reduce_scatter(as_index(reduction.bucket), reduction.micro_batch);
  const Bucket& bucket = program_.buckets[as_index(reduction.bucket)];
  const auto& members = reduction.axis == GroupAxis::Data ? step_.data_group : step_.tensor_group;
  all_reduce_gradient(bucket, {reduction.axis, members});
}

void ProgramBuilder::all_reduce_gradient(const Bucket& bucket, const Group& group) {
  all_reduce(program_.buffers[as_index(bucket.buffer)].name, group, bucket.buffer, bucket.elements,
             step_.element_bytes.gradient, step_.gradient_wire);
}

void ProgramBuilder::all_reduce(const std::string& name, const Group& group, int buffer,
                                std::int64_t elements, std::int64_t element_bytes,
                                std::optional<NumberType> wire) {
  const auto members = static_cast<std::int64_t>(group.members.size());
  const std::int64_t staging = all_reduce_staging_bytes(elements, element_bytes, members);
  const std::int64_t held = round_up(staging, step_.granularity);
  make_room(held);
  Instruction instruction;
  instruction.operation = Operation::AllReduce;
  instruction.node = name;
  instruction.arguments.staging = new_buffer(name + ".staging", BufferKind::Communication, staging);
  instruction.arguments.inputs = {buffer};
  instruction.reads = {buffer};
  instruction.writes = {buffer, instruction.arguments.staging};
  const std::int64_t bytes = elements * (wire ? number_bytes(*wire) : element_bytes);
  instruction.seconds =
      collective_seconds("all-reduce", bytes, members, step_.links.of_group(group.axis));
  instruction.channel =
      Channel{"all-reduce", group.axis, group.members, -1, next_tag(group.axis), bytes, wire};
  submit(std::move(instruction), held);
}

void ProgramBuilder::submit(Instruction instruction, std::int64_t held_bytes) {
  instruction.lane = Lane::Collective;
  add(std::move(instruction));
  window_.submitted(last_instruction(), held_bytes);
}

void ProgramBuilder::reduce_scatter(std::size_t number, int micro_batch) {
  const std::int64_t held = held_bytes({static_cast<int>(number), micro_batch});
  make_room(held);
  const Bucket& bucket = program_.buckets[number];
  const std::int64_t elements = padded_elements(bucket);
  const std::int64_t element_bytes = step_.element_bytes.gradient;
  const auto members = static_cast<std::int64_t>(step_.data_group.size());
  Instruction instruction;
  instruction.operation = Operation::ReduceScatter;
  instruction.node = program_.buffers[as_index(bucket.buffer)].name;
  instruction.bucket = static_cast<int>(number);
  instruction.micro_batch = micro_batch;
  instruction.arguments.staging =
      new_buffer(instruction.node + ".staging", BufferKind::Communication,
                 all_reduce_staging_bytes(elements, element_bytes, members));
  instruction.arguments.inputs = instruction.reads = {bucket.buffer};
  instruction.writes = {bucket.buffer, instruction.arguments.staging};
  const std::int64_t bytes = elements * step_.gradient_wire_bytes();
  instruction.seconds = collective_seconds("reduce-scatter", bytes, members, step_.links.data);
  instruction.channel = Channel{"reduce-scatter",          GroupAxis::Data, step_.data_group,   -1,
                                next_tag(GroupAxis::Data), bytes,           step_.gradient_wire};
  submit(std::move(instruction), held);
  hand_over_buffer(number);
}

void ProgramBuilder::wait_for_reduction(int instruction) {
  wait(instruction);
  window_.waited(instruction);
}

void ProgramBuilder::wait_for_all_reductions() {
  while (!window_.empty()) wait_for_reduction(window_.oldest());
}

void ProgramBuilder::wait(int completes) {
  const Instruction waited = program_.instructions.at(as_index(completes));
  Instruction instruction;
  instruction.operation = Operation::Wait;
  instruction.completes = completes;
  instruction.node = waited.node;
  instruction.micro_batch = waited.micro_batch;
  add(std::move(instruction));
  if (waited.operation == Operation::ReduceScatter && step_.zero >= 2) keep_shard(waited);
}

void ProgramBuilder::keep_shard(const Instruction& reduced) {
  const auto number = as_index(reduced.bucket);
  const Bucket& bucket = program_.buckets[number];
  GradientBucket& gradients = buckets_[number];
  Instruction instruction;
  instruction.operation = Operation::KeepShard;
  instruction.node = reduced.node;
  instruction.bucket = reduced.bucket;
  instruction.micro_batch = reduced.micro_batch;
  instruction.arguments.inputs = instruction.reads = reduced.arguments.inputs;
  instruction.arguments.part = {reduced.arguments.inputs[0], 0, bucket.shard.elements};
  instruction.arguments.parameter_gradients = {
      {{bucket.shard.gradient, 0, bucket.shard.elements}, gradients.shard_live, -1}};
  if (gradients.shard_live) instruction.reads.push_back(bucket.shard.gradient);
  instruction.writes = {bucket.shard.gradient};
  instruction.seconds = static_cast<double>(bucket.shard.elements) * step_.norm_seconds_per_element;
  gradients.shard_live = true;
  add(std::move(instruction));
}

void ProgramBuilder::gather_updated(const Bucket& bucket) {
  const auto members = static_cast<std::int64_t>(step_.data_group.size());
  Instruction instruction;
  instruction.operation = Operation::AllGather;
  instruction.node = program_.buffers[as_index(bucket.shard.parameter)].name;
  instruction.arguments.inputs = instruction.reads = instruction.writes = {bucket.shard.parameter};
  instruction.arguments.output = bucket.shard.parameter;
  const std::int64_t bytes = padded_elements(bucket) * step_.element_bytes.parameter;
  instruction.seconds = collective_seconds("all-gather", bytes, members, step_.links.data);
  instruction.channel = Channel{"all-gather", GroupAxis::Data,           step_.data_group,
                                -1,           next_tag(GroupAxis::Data), bytes};
  submit(std::move(instruction), 0);
}

}  // namespace garonne::plan
