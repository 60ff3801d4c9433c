// Of the builder: the end of a step, from the last sums to the report.
#include <algorithm>

#include "base/index.hpp"
#include "plan/step/program_builder.hpp"
#include "plan/step/rank_program.hpp"

namespace garonne::plan {

// Sums of one bucket over the tensor group, the copies on other stages, and the data group; each
// adds to what the one before has made.
void ProgramBuilder::finish_tied(int number) {
  const Bucket& bucket = program_.buckets[as_index(number)];
  if (sums_over_tensor(bucket.parameters.front())) {
    all_reduce_gradient(bucket, {GroupAxis::Tensor, step_.tensor_group});
    wait_for_all_reductions();
  }
  if (step_.pipeline.tied_group.size() > 1)
    all_reduce_gradient(bucket, {GroupAxis::Tied, step_.pipeline.tied_group});
  if (!reduces()) return;
  wait_for_all_reductions();
  if (in_shards()) return reduce_scatter(as_index(number), step_.micro_batches - 1);
  all_reduce_gradient(bucket, {GroupAxis::Data, step_.data_group});
}

void ProgramBuilder::finish_step() {
  submit_reductions(true);
  std::vector<int> tied;
  for (int number = 0; number < static_cast<int>(program_.buckets.size()); ++number) {
    if (is_tied(program_.buckets[as_index(number)])) tied.push_back(number);
  }
  // Stages finish the parameters that they share in orders of their own; they meet in one.
  const auto name_of = [&](int number) -> const std::string& {
    return graph_.parameters[as_index(program_.buckets[as_index(number)].parameters.front())].name;
  };
  std::sort(tied.begin(), tied.end(), [&](int a, int b) { return name_of(a) < name_of(b); });
  for (const int number : tied) finish_tied(number);
  wait_for_all_reductions();
  Instruction squares;
  squares.operation = Operation::SumSquares;
  squares.node = "gradients";
  for (const auto& bucket : program_.buckets) {
    squares.reads.push_back(bucket.shard.gradient >= 0 ? bucket.shard.gradient : bucket.buffer);
    const std::int64_t elements = in_shards() ? bucket.shard.elements : bucket.elements;
    squares.seconds += static_cast<double>(elements) * step_.norm_seconds_per_element;
  }
  squares.arguments.output = loss_sum_;
  if (graph_.loss >= 0) squares.reads.push_back(loss_sum_);
  squares.writes = {loss_sum_};
  add(std::move(squares));
  if (step_.world_group.size() > 1) {
    all_reduce("step_sums", {GroupAxis::World, step_.world_group}, loss_sum_, 2, scalar_bytes,
               std::nullopt);
    wait_for_reduction(window_.oldest());
  }
  gradient_norm_ = new_range("gradient_norm", BufferKind::Scalar, 1, scalar_bytes);
  Instruction norm;
  norm.operation = Operation::Norm;
  norm.node = "gradients";
  norm.reads = {loss_sum_};
  norm.arguments.inputs = norm.reads;
  norm.arguments.output = gradient_norm_;
  norm.writes = {gradient_norm_};
  add(std::move(norm));
  for (std::size_t number = 0; number < program_.buckets.size(); ++number) {
    buckets_[number].tensor_sums = sum_tensors(number);
    update(number);
    if (in_shards() && step_.zero < 3) gather_updated(program_.buckets[number]);
  }
  wait_for_all_reductions();
  Instruction report;
  report.operation = Operation::Report;
  report.node = "step";
  report.reads = {loss_sum_, gradient_norm_};
  report.arguments.inputs = report.reads;
  add(std::move(report));
  add_pieces();
}

// Which shards there are is a matter of the rank: see place_shards().
void ProgramBuilder::add_pieces() {
  for (std::size_t p = 0; p < graph_.parameters.size() && !in_shards(); ++p) {
    const BuiltParameter& built = parameters_[p];
    const Bucket& bucket = program_.buckets[as_index(built.bucket)];
    const std::int64_t elements = graph_.parameters[p].elements;
    Piece piece;
    piece.parameter = static_cast<int>(p);
    piece.gradient = {bucket.buffer, built.offset, elements};
    piece.trained = {built.trained(), 0, elements};
    for (const int state : built.states)
      piece.states.push_back({state, 0, program_.buffers[as_index(state)].elements});
    if (built.master >= 0) piece.compute_copy = built.range;
    piece.sums = sums_of_parameter(program_, bucket, graph_, piece.parameter,
                                   buckets_[as_index(built.bucket)].tensor_sums);
    program_.pieces.push_back(std::move(piece));
  }
}

bool ProgramBuilder::is_cut_over_tensor(const Bucket& bucket) const {
  return step_.tensor_group.size() > 1 &&
         std::any_of(bucket.parameters.begin(), bucket.parameters.end(),
                     [&](int p) { return !graph_.parameters[as_index(p)].replicated; });
}

std::vector<int> ProgramBuilder::sum_tensors(std::size_t number) {
  std::vector<int> sums;
  for (std::size_t round = 0; round < step_.tensor_sums.size(); ++round)
    sums.push_back(sum_tensors(number, sums));
  return sums;
}

int ProgramBuilder::sum_tensors(std::size_t number, const std::vector<int>& before) {
  const Bucket bucket = program_.buckets[number];
  const std::string name =
      program_.buffers[as_index(bucket.buffer)].name + (before.empty() ? ".sums" : ".later.sums");
  const TensorSums& each = step_.tensor_sums[before.size()];
  const std::int64_t numbers = numbers_before(
      bucket, graph_, -1, [&](const MatrixSides& sides) { return each.count(sides); });
  const int sums = new_range(name, BufferKind::Scalar, numbers, scalar_bytes);
  Instruction instruction;
  instruction.operation = Operation::SumTensors;
  instruction.node = name;
  instruction.bucket = static_cast<int>(number);
  instruction.arguments.inputs = {gradient_norm_};
  instruction.arguments.inputs.insert(instruction.arguments.inputs.end(), before.begin(),
                                      before.end());
  instruction.arguments.output = sums;
  const BucketShard& shard = bucket.shard;
  instruction.reads = instruction.arguments.inputs;
  instruction.reads.push_back(shard.gradient >= 0 ? shard.gradient : bucket.buffer);
  const auto reads = [&](const std::vector<int>& states, int trained) {
    instruction.reads.insert(instruction.reads.end(), states.begin(), states.end());
    instruction.reads.push_back(trained);
  };
  if (in_shards()) {
    reads(shard.states, shard.master >= 0 ? shard.master : shard.parameter);
  } else {
    for (const int p : bucket.parameters) {
      reads(parameters_[as_index(p)].states, parameters_[as_index(p)].trained());
      instruction.arguments.pieces.push_back(p);
    }
  }
  instruction.writes = {sums};
  const std::int64_t elements = in_shards() ? shard.elements : bucket.elements;
  instruction.seconds = static_cast<double>(elements) * step_.sums_seconds_per_element;
  add(std::move(instruction));
  const auto over = [&](const Group& group) {
    all_reduce(name, group, sums, numbers, scalar_bytes, std::nullopt);
    // What is under way before it, as gathers, goes on.
    wait_for_reduction(window_.newest());
  };
  if (in_shards()) over({GroupAxis::Data, step_.data_group});
  if (is_cut_over_tensor(bucket)) over({GroupAxis::Tensor, step_.tensor_group});
  return sums;
}

void ProgramBuilder::update(std::size_t number) {
  const Bucket& bucket = program_.buckets[number];
  Instruction instruction;
  instruction.operation = Operation::Update;
  instruction.node = program_.buffers[as_index(bucket.buffer)].name;
  instruction.bucket = static_cast<int>(number);
  const BucketShard& shard = bucket.shard;
  instruction.arguments.inputs = {gradient_norm_};
  instruction.reads = {gradient_norm_, shard.gradient >= 0 ? shard.gradient : bucket.buffer};
  for (const int of_round : buckets_[number].tensor_sums) {
    instruction.arguments.inputs.push_back(of_round);
    instruction.reads.push_back(of_round);
  }
  if (in_shards()) {
    instruction.seconds = static_cast<double>(shard.elements) * step_.update_seconds_per_element;
    instruction.writes = shard.states;
    instruction.writes.push_back(shard.parameter);
    if (shard.master >= 0) instruction.writes.push_back(shard.master);
    instruction.reads.insert(instruction.reads.end(), instruction.writes.begin(),
                             instruction.writes.end());
    return add(std::move(instruction));
  }
  instruction.seconds = static_cast<double>(bucket.elements) * step_.update_seconds_per_element;
  for (const int p : bucket.parameters) {
    const BuiltParameter& built = parameters_[as_index(p)];
    std::vector<int> updated = built.states;
    updated.push_back(built.range.buffer);
    if (built.master >= 0) updated.push_back(built.master);
    instruction.arguments.pieces.push_back(p);
    instruction.reads.insert(instruction.reads.end(), updated.begin(), updated.end());
    instruction.writes.insert(instruction.writes.end(), updated.begin(), updated.end());
  }
  add(std::move(instruction));
}

void ProgramBuilder::report(int output) {
  Instruction instruction;
  instruction.operation = Operation::Report;
  instruction.node = "forward";
  if (output >= 0) instruction.reads = {output};
  instruction.arguments.inputs = instruction.reads;
  add(std::move(instruction));
}

}  // namespace garonne::plan
