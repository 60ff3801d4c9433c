#include "plan/step/program_builder.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/collective_bytes.hpp"
#include "base/error.hpp"

namespace garonne::plan {
namespace {

std::size_t index(int id) {
  return static_cast<std::size_t>(id);
}
constexpr std::int64_t scalar_bytes = 8;
// Of a tensor of 8-bit states, blocks are whole in one shard; and every byte count is a multiple of
// the granularity.
constexpr std::int64_t shard_granularity_elements = 256;

}  // namespace

ProgramBuilder::ProgramBuilder(const ModelGraph& graph, const StepShape& step)
    : graph_(graph),
      step_(step),
      bucket_of_(graph.parameters.size(), -1),
      offset_of_(graph.parameters.size(), 0),
      written_(graph.parameters.size(), false) {
  program_.micro_batches = step.micro_batches;
}

int ProgramBuilder::new_buffer(std::string name, BufferKind kind, std::int64_t bytes) {
  Buffer buffer;
  buffer.name = std::move(name);
  buffer.kind = kind;
  buffer.bytes = round_up(bytes, step_.granularity);
  program_.buffers.push_back(std::move(buffer));
  return static_cast<int>(program_.buffers.size()) - 1;
}

void ProgramBuilder::add(Instruction instruction) {
  program_.instructions.push_back(std::move(instruction));
}

int ProgramBuilder::new_range(const std::string& name, BufferKind kind, std::int64_t elements,
                              std::int64_t element_bytes) {
  const int id = new_buffer(name, kind, elements * element_bytes);
  program_.buffers[index(id)].elements = elements;
  program_.buffers[index(id)].element_bytes = element_bytes;
  return id;
}

int ProgramBuilder::add_static(const std::string& name, BufferKind kind, std::int64_t elements,
                               std::int64_t element_bytes) {
  const int id = new_range(name, kind, elements, element_bytes);
  program_.buffers[index(id)].live_at_start = true;
  program_.buffers[index(id)].live_at_end = true;
  return id;
}

void ProgramBuilder::add_parameters() {
  if (in_shards()) return add_flat_parameters();
  const ElementBytes& bytes = step_.element_bytes;
  for (const auto& parameter : graph_.parameters) {
    const std::int64_t elements = parameter.elements;
    parameter_of_.push_back(
        {add_static(parameter.name, BufferKind::Parameter, elements, bytes.parameter), 0,
         elements});
    Whole whole;
    if (bytes.master > 0) {
      whole.master = add_static(parameter.name + ".master", BufferKind::MasterParameter, elements,
                                bytes.master);
    }
    for (const auto& state : step_.optimizer_states) {
      whole.states.push_back(add_static(parameter.name + "." + state, BufferKind::OptimizerState,
                                        elements, bytes.state));
    }
    whole_.push_back(std::move(whole));
  }
}

void ProgramBuilder::add_flat_parameters() {
  parameter_of_.resize(graph_.parameters.size());
  const ElementBytes& bytes = step_.element_bytes;
  const auto ranks = static_cast<std::int64_t>(step_.data_group.size());
  for (auto& bucket : program_.buckets) {
    const std::string name = bucket_name(bucket);
    BucketShard& shard = bucket.shard;
    shard.elements = round_up((bucket.elements + ranks - 1) / ranks, shard_granularity_elements);
    const std::int64_t padded = padded_elements(bucket);
    const bool whole = step_.zero < 3;
    shard.parameter = add_static(whole ? name : name + ".shard", BufferKind::Parameter,
                                 whole ? padded : shard.elements, bytes.parameter);
    if (bytes.master > 0) {
      shard.master = add_static(name + ".master.shard", BufferKind::MasterParameter, shard.elements,
                                bytes.master);
    }
    for (const auto& state : step_.optimizer_states) {
      shard.states.push_back(add_static(name + "." + state + ".shard", BufferKind::OptimizerState,
                                        shard.elements, bytes.state));
    }
    if (!whole) {
      shard.gathered =
          new_range(name + ".gathered", BufferKind::GatheredParameter, padded, bytes.parameter);
    }
    for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
      const int p = bucket.parameters[k];
      parameter_of_[index(p)] = {whole ? shard.parameter : shard.gathered, bucket.offsets[k],
                                 graph_.parameters[index(p)].elements};
    }
  }
}

std::int64_t ProgramBuilder::padded_elements(const Bucket& bucket) const {
  return bucket.shard.elements == 0
             ? bucket.elements
             : bucket.shard.elements * static_cast<std::int64_t>(step_.data_group.size());
}

std::string ProgramBuilder::bucket_name(const Bucket& bucket) const {
  const std::string& first = graph_.parameters[index(bucket.parameters.front())].name;
  return bucket.parameters.size() == 1 ? first
                                       : fmt::format("{}+{}", first, bucket.parameters.size() - 1);
}

void ProgramBuilder::make_buckets() {
  const auto parameters = static_cast<int>(graph_.parameters.size());
  // A parameter is complete when the first node of the list that uses it and has a backward has run
  // it.
  std::vector<int> first_user(index(parameters), -1);
  for (int n = static_cast<int>(graph_.nodes.size()) - 1; n >= 0; --n) {
    if (!graph_.has_backward(graph_.nodes[index(n)])) continue;
    for (const int parameter : graph_.nodes[index(n)].parameters) first_user[index(parameter)] = n;
  }
  std::vector<int> order;
  for (int p = 0; p < parameters; ++p) {
    expect(first_user[index(p)] >= 0, graph_.parameters[index(p)].name + " is used by no node");
    order.push_back(p);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return first_user[index(a)] > first_user[index(b)]; });
  // What is gathered for one block is of use to that block only.
  const bool by_block = in_shards() && step_.zero == 3;
  const auto block_of = [&](int p) { return graph_.nodes[index(first_user[index(p)])].block; };
  // Gradients that are summed over the tensor group first have buckets of their own.
  int open[2] = {-1, -1};
  for (const int p : order) {
    const std::int64_t elements = graph_.parameters[index(p)].elements;
    const bool sums = sums_over_tensor(p);
    const std::int64_t target =
        (sums ? step_.tensor_bucket_bytes : step_.bucket_bytes) / step_.element_bytes.gradient;
    int& number = open[sums ? 1 : 0];
    const bool fits =
        number >= 0 && target > 0 &&
        (!graph_.parameters[index(p)].complex ||
         program_.buckets[index(number)].elements % 2 == 0) &&
        program_.buckets[index(number)].elements + elements <= target &&
        !graph_.parameters[index(p)].tied && !is_tied(program_.buckets[index(number)]) &&
        !(by_block && block_of(p) != block_of(program_.buckets[index(number)].parameters[0]));
    if (!fits) {
      number = static_cast<int>(program_.buckets.size());
      program_.buckets.emplace_back();
    }
    Bucket& bucket = program_.buckets[index(number)];
    bucket_of_[index(p)] = number;
    offset_of_[index(p)] = bucket.elements;
    bucket.parameters.push_back(p);
    bucket.offsets.push_back(bucket.elements);
    bucket.elements += elements;
  }
}

void ProgramBuilder::add_gradients() {
  const std::int64_t bytes = step_.element_bytes.gradient;
  for (auto& bucket : program_.buckets) {
    const std::string& first = graph_.parameters[index(bucket.parameters.front())].name;
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
  bucket_live_.assign(program_.buckets.size(), false);
  bucket_reduced_.assign(program_.buckets.size(), false);
  shard_live_.assign(program_.buckets.size(), false);
  nodes_to_come_.assign(program_.buckets.size(), 0);
  for (const auto& node : graph_.nodes) {
    weights_to_come_.push_back(micro_batches_of(node.chunk));
    if (!graph_.has_backward(node)) continue;
    for (const int p : node.parameters) ++nodes_to_come_[index(bucket_of_[index(p)])];
  }
  uses_ = nodes_to_come_;
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
  const int number = bucket_of_.at(index(parameter));
  if (bucket_reduced_[index(number)]) {
    Bucket& bucket = program_.buckets[index(number)];
    const Buffer reduced = program_.buffers[index(bucket.buffer)];
    bucket.buffer =
        new_range(reduced.name, BufferKind::Gradient, reduced.elements, reduced.element_bytes);
    bucket_reduced_[index(number)] = false;
  }
  const Bucket& bucket = program_.buckets[index(number)];
  const int buffer = bucket.buffer;
  // A node may write several gradients into one bucket: it is listed once.
  if (std::find(instruction.writes.begin(), instruction.writes.end(), buffer) ==
      instruction.writes.end()) {
    if (bucket_live_[index(number)]) instruction.reads.push_back(buffer);
    instruction.writes.push_back(buffer);
  }
  const std::int64_t padding = padded_elements(bucket) - bucket.elements;
  if (!bucket_live_[index(number)] && padding > 0)
    instruction.arguments.zeroed.push_back({buffer, bucket.elements, padding});
  bucket_live_[index(number)] = true;
  GradientTarget target{
      {buffer, offset_of_[index(parameter)], graph_.parameters[index(parameter)].elements},
      written_[index(parameter)],
      parameter};
  written_[index(parameter)] = true;
  return target;
}

bool ProgramBuilder::is_tied(const Bucket& bucket) const {
  return graph_.parameters[index(bucket.parameters.front())].tied;
}

bool ProgramBuilder::sums_over_tensor(int parameter) const {
  return step_.tensor_group.size() > 1 && graph_.parameters[index(parameter)].sums_over_tensor;
}

void ProgramBuilder::set_collective(const NodeCollective& collective, Instruction& instruction) {
  if (collective.kind.empty()) return;
  expect(step_.tensor_group.size() > 1, instruction.node + " has no tensor group to meet");
  instruction.channel = Channel{
      collective.kind, GroupAxis::Tensor, step_.tensor_group, -1, next_tag(GroupAxis::Tensor),
      collective.bytes};
}

void ProgramBuilder::finished_weights(int n, int micro_batch) {
  const bool each = reduces_each_micro_batch();
  if (!each && --weights_to_come_[index(n)] > 0) return;
  for (const int p : graph_.nodes[index(n)].parameters) {
    const int number = bucket_of_[index(p)];
    const Bucket& bucket = program_.buckets[index(number)];
    // The two copies are summed when both stages are done.
    if (--nodes_to_come_[index(number)] > 0) continue;
    nodes_to_come_[index(number)] = uses_[index(number)];
    if (is_tied(bucket)) continue;
    if (sums_over_tensor(bucket.parameters.front())) {
      all_reduce(program_.buffers[index(bucket.buffer)].name,
                 {GroupAxis::Tensor, step_.tensor_group}, bucket.buffer, bucket.elements,
                 step_.element_bytes.gradient);
      while (reduces() && !in_flight_.empty()) wait_for_oldest();
    }
    if (!reduces()) continue;
    if (in_shards()) {
      reduce_scatter(index(number), micro_batch);
      continue;
    }
    all_reduce(program_.buffers[index(bucket.buffer)].name, {GroupAxis::Data, step_.data_group},
               bucket.buffer, bucket.elements, step_.element_bytes.gradient);
  }
}

void ProgramBuilder::all_reduce(const std::string& name, const Group& group, int buffer,
                                std::int64_t elements, std::int64_t element_bytes) {
  while (static_cast<int>(in_flight_.size()) >= step_.reductions_in_flight) wait_for_oldest();
  Instruction instruction;
  instruction.operation = Operation::AllReduce;
  instruction.node = name;
  const auto members = static_cast<std::int64_t>(group.members.size());
  instruction.arguments.staging =
      new_buffer(name + ".staging", BufferKind::Communication,
                 all_reduce_staging_bytes(elements, element_bytes, members));
  instruction.arguments.inputs = {buffer};
  instruction.reads = {buffer};
  instruction.writes = {buffer, instruction.arguments.staging};
  const std::int64_t bytes = elements * element_bytes;
  instruction.seconds =
      collective_seconds("all-reduce", bytes, members, step_.links.of_group(group.axis));
  instruction.channel =
      Channel{"all-reduce", group.axis, group.members, -1, next_tag(group.axis), bytes};
  submit(std::move(instruction));
}

void ProgramBuilder::submit(Instruction instruction) {
  instruction.lane = Lane::Collective;
  in_flight_.push_back(static_cast<int>(program_.instructions.size()));
  add(std::move(instruction));
}

void ProgramBuilder::reduce_scatter(std::size_t number, int micro_batch) {
  while (static_cast<int>(in_flight_.size()) >= step_.reductions_in_flight) wait_for_oldest();
  const Bucket& bucket = program_.buckets[number];
  const std::int64_t elements = padded_elements(bucket);
  const std::int64_t element_bytes = step_.element_bytes.gradient;
  const auto members = static_cast<std::int64_t>(step_.data_group.size());
  Instruction instruction;
  instruction.operation = Operation::ReduceScatter;
  instruction.node = program_.buffers[index(bucket.buffer)].name;
  instruction.node_index = static_cast<int>(number);
  instruction.micro_batch = micro_batch;
  instruction.arguments.staging =
      new_buffer(instruction.node + ".staging", BufferKind::Communication,
                 all_reduce_staging_bytes(elements, element_bytes, members));
  instruction.arguments.inputs = instruction.reads = {bucket.buffer};
  instruction.writes = {bucket.buffer, instruction.arguments.staging};
  const std::int64_t bytes = elements * element_bytes;
  instruction.seconds = collective_seconds("reduce-scatter", bytes, members, step_.links.data);
  instruction.channel = Channel{
      "reduce-scatter", GroupAxis::Data, step_.data_group, -1, next_tag(GroupAxis::Data), bytes};
  submit(std::move(instruction));
  bucket_live_[number] = false;
  bucket_reduced_[number] = true;
  for (const int p : bucket.parameters) written_[index(p)] = false;
}

void ProgramBuilder::wait_for_oldest() {
  wait(in_flight_.front());
  in_flight_.erase(in_flight_.begin());
}

void ProgramBuilder::wait(int completes) {
  const Instruction waited = program_.instructions.at(index(completes));
  Instruction instruction;
  instruction.operation = Operation::Wait;
  instruction.completes = completes;
  instruction.node = waited.node;
  instruction.micro_batch = waited.micro_batch;
  add(std::move(instruction));
  if (waited.operation == Operation::ReduceScatter && step_.zero >= 2) keep_shard(waited);
}

void ProgramBuilder::keep_shard(const Instruction& reduced) {
  const auto number = index(reduced.node_index);
  const Bucket& bucket = program_.buckets[number];
  Instruction instruction;
  instruction.operation = Operation::KeepShard;
  instruction.node = reduced.node;
  instruction.node_index = reduced.node_index;
  instruction.micro_batch = reduced.micro_batch;
  instruction.arguments.inputs = instruction.reads = reduced.arguments.inputs;
  instruction.arguments.part = {reduced.arguments.inputs[0], 0, bucket.shard.elements};
  instruction.arguments.parameter_gradients = {
      {{bucket.shard.gradient, 0, bucket.shard.elements}, shard_live_[number], -1}};
  if (shard_live_[number]) instruction.reads.push_back(bucket.shard.gradient);
  instruction.writes = {bucket.shard.gradient};
  instruction.seconds = static_cast<double>(bucket.shard.elements) * step_.norm_seconds_per_element;
  shard_live_[number] = true;
  add(std::move(instruction));
}

void ProgramBuilder::gather_updated(const Bucket& bucket) {
  const auto members = static_cast<std::int64_t>(step_.data_group.size());
  Instruction instruction;
  instruction.operation = Operation::AllGather;
  instruction.node = program_.buffers[index(bucket.shard.parameter)].name;
  instruction.arguments.inputs = instruction.reads = instruction.writes = {bucket.shard.parameter};
  instruction.arguments.output = bucket.shard.parameter;
  const std::int64_t bytes = padded_elements(bucket) * step_.element_bytes.parameter;
  instruction.seconds = collective_seconds("all-gather", bytes, members, step_.links.data);
  instruction.channel = Channel{"all-gather", GroupAxis::Data,           step_.data_group,
                                -1,           next_tag(GroupAxis::Data), bytes};
  submit(std::move(instruction));
}

// Sums of one bucket over the tensor group, the copies on other stages, and the data group; each
// adds to what the one before has made.
void ProgramBuilder::finish_tied(int number) {
  const Bucket& bucket = program_.buckets[index(number)];
  const std::string name = program_.buffers[index(bucket.buffer)].name;
  const std::int64_t element_bytes = step_.element_bytes.gradient;
  if (sums_over_tensor(bucket.parameters.front())) {
    all_reduce(name, {GroupAxis::Tensor, step_.tensor_group}, bucket.buffer, bucket.elements,
               element_bytes);
    while (!in_flight_.empty()) wait_for_oldest();
  }
  if (step_.pipeline.tied_group.size() > 1) {
    all_reduce(name, {GroupAxis::Tied, step_.pipeline.tied_group}, bucket.buffer, bucket.elements,
               element_bytes);
  }
  if (!reduces()) return;
  while (!in_flight_.empty()) wait_for_oldest();
  if (in_shards()) return reduce_scatter(index(number), step_.micro_batches - 1);
  all_reduce(name, {GroupAxis::Data, step_.data_group}, bucket.buffer, bucket.elements,
             element_bytes);
}

void ProgramBuilder::finish_step() {
  std::vector<int> tied;
  for (int number = 0; number < static_cast<int>(program_.buckets.size()); ++number) {
    if (is_tied(program_.buckets[index(number)])) tied.push_back(number);
  }
  // Stages finish the parameters that they share in orders of their own; they meet in one.
  const auto name_of = [&](int number) -> const std::string& {
    return graph_.parameters[index(program_.buckets[index(number)].parameters.front())].name;
  };
  std::sort(tied.begin(), tied.end(), [&](int a, int b) { return name_of(a) < name_of(b); });
  for (const int number : tied) finish_tied(number);
  while (!in_flight_.empty()) wait_for_oldest();
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
    all_reduce("step_sums", {GroupAxis::World, step_.world_group}, loss_sum_, 2, scalar_bytes);
    wait_for_oldest();
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
    update(program_.buckets[number], number);
    if (in_shards() && step_.zero < 3) gather_updated(program_.buckets[number]);
  }
  while (!in_flight_.empty()) wait_for_oldest();
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
    const Bucket& bucket = program_.buckets[index(bucket_of_[p])];
    const Whole& whole = whole_[p];
    const std::int64_t elements = graph_.parameters[p].elements;
    Piece piece;
    piece.parameter = static_cast<int>(p);
    piece.gradient = {bucket.buffer, offset_of_[p], elements};
    piece.trained = whole.master >= 0 ? Range{whole.master, 0, elements} : parameter_of_[p];
    for (const int state : whole.states) piece.states.push_back({state, 0, elements});
    if (whole.master >= 0) piece.compute_copy = parameter_of_[p];
    program_.pieces.push_back(std::move(piece));
  }
}

void ProgramBuilder::update(const Bucket& bucket, std::size_t number) {
  Instruction instruction;
  instruction.operation = Operation::Update;
  instruction.node = program_.buffers[index(bucket.buffer)].name;
  instruction.node_index = static_cast<int>(number);
  const BucketShard& shard = bucket.shard;
  instruction.arguments.inputs = {gradient_norm_};
  instruction.reads = {gradient_norm_, shard.gradient >= 0 ? shard.gradient : bucket.buffer};
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
    const Whole& whole = whole_[index(p)];
    std::vector<int> updated = whole.states;
    updated.push_back(parameter_of_[index(p)].buffer);
    if (whole.master >= 0) updated.push_back(whole.master);
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
