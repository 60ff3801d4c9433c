#include "exec/executor.hpp"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstring>

#include "base/bytes.hpp"
#include "base/device.hpp"
#include "base/error.hpp"
#include "dist/session.hpp"
#include "exec/executor_running.hpp"
#include "kernels/reduction.hpp"
#include "nn/element_type.hpp"
#include "optim/schedule.hpp"

namespace garonne::exec {
namespace {

using Clock = std::chrono::steady_clock;

at::Tensor loaded_tensor(const HostBatch& batch, const std::string& name, Precision precision) {
  const auto field = batch.fields.find(name);
  if (field != batch.fields.end()) {
    // Wrapped, not made: what is loaded is not the tier's until it is converted.
    const at::Tensor values =
        at::from_blob(const_cast<float*>(field->second.data()),
                      {static_cast<std::int64_t>(field->second.size())}, at::kFloat);
    at::Tensor tensor = at::empty(values.sizes(), nn::compute_scalar_type(precision));
    tensor.copy_(values);
    return tensor;
  }
  const auto found = batch.values.find(name);
  expect(found != batch.values.end(), "a micro-batch lacks its " + name);
  at::Tensor tensor = at::empty({static_cast<std::int64_t>(found->second.size())}, at::kLong);
  std::memcpy(tensor.data_ptr(), found->second.data(), found->second.size() * sizeof(std::int64_t));
  return tensor;
}

}  // namespace

Executor::Executor(const nn::Model& model, const plan::Program& program, const Machine& machine)
    : model_(model),
      program_(program),
      machine_(machine),
      bucket_of_(program.parameters.size(), -1),
      offset_of_(program.parameters.size(), 0) {
  for (std::size_t number = 0; number < program.buckets.size(); ++number) {
    const plan::Bucket& bucket = program.buckets[number];
    for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
      bucket_of_[index(bucket.parameters[k])] = static_cast<int>(number);
      offset_of_[index(bucket.parameters[k])] = bucket.offsets[k];
    }
  }
}

StepOutputs Executor::run(const StepInputs& inputs) {
  const at::NoGradGuard no_gradients;
  const DeviceScope scope(*machine_.tier);
  Running running{inputs, std::vector<at::Tensor>(program_.buffers.size()), {}, {}, {}, 1, {}};
  running.samples.resize(index(program_.micro_batches));
  for (std::size_t number = 0; program_.zero > 0 && number < program_.buckets.size(); ++number) {
    const plan::BucketShard& ids = program_.buckets[number].shard;
    const ShardState& shard = machine_.state->shards.at(number);
    running.buffers[index(ids.parameter)] = program_.zero < 3 ? shard.whole : shard.parameter;
    if (ids.master >= 0) running.buffers[index(ids.master)] = shard.master;
    for (std::size_t k = 0; k < ids.states.size(); ++k)
      running.buffers[index(ids.states[k])] = shard.states[k];
  }
  for (std::size_t p = 0; program_.zero == 0 && p < program_.parameters.size(); ++p) {
    const plan::ParameterBuffers& ids = program_.parameters[p];
    const ParameterState& state = machine_.state->parameters[p];
    running.buffers[index(ids.parameter)] = state.parameter;
    if (ids.master >= 0) running.buffers[index(ids.master)] = state.master;
    for (std::size_t k = 0; k < ids.states.size(); ++k)
      running.buffers[index(ids.states[k])] = state.states[k];
  }
  running.outputs.measurements.reserve(program_.instructions.size());
  for (std::size_t number = 0; number < program_.instructions.size(); ++number) {
    const plan::Instruction& instruction = program_.instructions[number];
    if (inputs.before) inputs.before(instruction.operation == plan::Operation::Update);
    machine_.tier->set_activity(plan::describe(instruction));
    machine_.tier->reset_peak();
    const auto start = Clock::now();
    execute(instruction, number, running);
    check_made(instruction, running);
    for (const int freed : instruction.frees) running.buffers[index(freed)].reset();
    plan::Measurement measurement;
    measurement.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    measurement.live_bytes = machine_.tier->live_bytes();
    measurement.peak_bytes = machine_.tier->peak_bytes();
    running.outputs.peak_bytes = std::max(running.outputs.peak_bytes, measurement.peak_bytes);
    running.outputs.measurements.push_back(measurement);
  }
  machine_.tier->set_activity("");
  return std::move(running.outputs);
}

void Executor::execute(const plan::Instruction& instruction, std::size_t number, Running& running) {
  switch (instruction.operation) {
    case plan::Operation::Load:
      return load(instruction, running);
    case plan::Operation::Forward:
      return forward(instruction, /*keep=*/false, running);
    case plan::Operation::ForwardKeep:
      return forward(instruction, /*keep=*/true, running);
    case plan::Operation::Backward:
    case plan::Operation::BackwardWeight:
    case plan::Operation::BackwardInput:
      return backward(instruction, running);
    case plan::Operation::EmitLoss: {
      const int sum = instruction.arguments.output;
      const at::Tensor& loss = running.buffers[index(instruction.arguments.inputs[0])];
      at::Tensor& total = running.buffers[index(sum)];
      const bool first = !total.defined();
      if (first) make(instruction, sum, at::zeros({2}, loss.options()), running);
      double& value = *total.data_ptr<double>();
      value = (first ? 0.0 : value) + *loss.const_data_ptr<double>() * running.inputs.loss_scale;
      return;
    }
    case plan::Operation::Send:
      return send(instruction, number, running);
    case plan::Operation::Receive:
      return receive(instruction, number, running);
    case plan::Operation::AllReduce:
      return all_reduce(instruction, number, running);
    case plan::Operation::ReduceScatter:
      return reduce_scatter(instruction, number, running);
    case plan::Operation::AllGather:
      return all_gather(instruction, number, running);
    case plan::Operation::KeepShard:
      return keep_shard(instruction, running);
    case plan::Operation::Wait: {
      const auto found = running.tickets.find(index(instruction.completes));
      expect(found != running.tickets.end(), "a wait without its reduction");
      found->second.first->wait(found->second.second);
      running.tickets.erase(found);
      return;
    }
    case plan::Operation::SumSquares:
      return sum_squares(instruction, running);
    case plan::Operation::Norm:
      return norm(instruction, running);
    case plan::Operation::Update:
      return update(instruction, running);
    case plan::Operation::Report:
      return report(instruction, running);
  }
}

void Executor::make(const plan::Instruction& instruction, int buffer, const at::Tensor& tensor,
                    Running& running) const {
  expect(buffer >= 0,
         plan::describe(instruction) + " makes a buffer that the Program does not name");
  running.buffers[index(buffer)] = tensor;
}

// A tensor of other bytes than the Program says would make every prediction after it wrong.
void Executor::check_made(const plan::Instruction& instruction, const Running& running) const {
  for (const int id : instruction.writes) {
    const plan::Buffer& buffer = program_.buffers[index(id)];
    const at::Tensor& tensor = running.buffers[index(id)];
    if (!tensor.defined() && buffer.bytes == 0) continue;
    expect(tensor.defined(), plan::describe(instruction) + " did not make " + buffer.name);
    const std::int64_t bytes =
        round_up(static_cast<std::int64_t>(tensor.storage().nbytes()), cpu_allocation_granularity);
    if (bytes != buffer.bytes) {
      throw InternalError(fmt::format("{} made {} with {} bytes where the Program says {}",
                                      plan::describe(instruction), buffer.name, bytes,
                                      buffer.bytes));
    }
  }
}

nn::Context Executor::context_of(const plan::Instruction& instruction,
                                 const Running& running) const {
  nn::Context context;
  context.precision = machine_.state->precision;
  context.seed = running.inputs.seed;
  context.step = static_cast<std::uint64_t>(running.inputs.step);
  context.training = running.inputs.training;
  const auto& samples = running.samples[index(instruction.micro_batch)];
  context.samples = samples.data();
  context.batch = static_cast<std::int64_t>(samples.size());
  context.products = machine_.products;
  context.tensor = machine_.tensor;
  return context;
}

void Executor::load(const plan::Instruction& instruction, Running& running) {
  HostBatch batch = running.inputs.load(instruction.micro_batch);
  std::vector<std::string> names;
  for (const auto& value : model_.graph.values) {
    if (value.loaded && !value.differentiable) names.push_back(value.name);
  }
  for (std::size_t i = 0; i < instruction.arguments.inputs.size(); ++i) {
    make(instruction, instruction.arguments.inputs[i],
         loaded_tensor(batch, names.at(i), machine_.state->precision), running);
  }
  running.samples[index(instruction.micro_batch)] = std::move(batch.samples);
}

void Executor::forward(const plan::Instruction& instruction, bool keep, Running& running) {
  const nn::Node& node = *model_.nodes[index(instruction.node_index)];
  std::vector<at::Tensor> inputs;
  for (const int id : instruction.arguments.inputs) inputs.push_back(running.buffers[index(id)]);
  const std::vector<at::Tensor> parameters = parameters_of(instruction, running);
  nn::Record record;
  const at::Tensor output =
      node.forward(context_of(instruction, running), inputs, parameters, keep ? &record : nullptr);
  make(instruction, instruction.arguments.output, output, running);
  if (!keep) return;
  expect(record.slots.size() == instruction.arguments.record.size(),
         plan::describe(instruction) + " kept another number of private slots than declared");
  for (std::size_t slot = 0; slot < record.slots.size(); ++slot) {
    make(instruction, instruction.arguments.record[slot], record.slots[slot], running);
  }
  record.slots.clear();
  running.records[{instruction.micro_batch, instruction.node_index}] = std::move(record);
}

// Under ZeRO a parameter is a view of its bucket's flat range.
std::vector<at::Tensor> Executor::parameters_of(const plan::Instruction& instruction,
                                                const Running& running) const {
  const plan::NodeSpec& node = model_.graph.nodes[index(instruction.node_index)];
  std::vector<at::Tensor> parameters;
  for (std::size_t k = 0; k < instruction.arguments.parameters.size(); ++k) {
    const at::Tensor& buffer = running.buffers[index(instruction.arguments.parameters[k])];
    if (program_.zero == 0) {
      parameters.push_back(buffer);
      continue;
    }
    const int p = node.parameters[k];
    const plan::ParameterSpec& spec = model_.graph.parameters[index(p)];
    parameters.push_back(buffer.narrow(0, offset_of_[index(p)], spec.elements).view(spec.shape));
  }
  return parameters;
}

at::Tensor Executor::gradient_target(const plan::GradientTarget& target, int parameter,
                                     const plan::Instruction& instruction, Running& running) const {
  const plan::Bucket& bucket = program_.buckets[index(bucket_of_[index(parameter)])];
  at::Tensor& buffer = running.buffers[index(target.buffer)];
  if (!buffer.defined()) {
    const std::int64_t padded = bucket.shard.elements * program_.shards_of_bucket;
    const std::int64_t elements = std::max(bucket.elements, padded);
    make(instruction, target.buffer,
         at::empty({elements}, nn::state_scalar_type(machine_.state->precision)), running);
    buffer.narrow(0, bucket.elements, elements - bucket.elements).zero_();
  }
  return buffer.narrow(0, target.offset_elements,
                       model_.graph.parameters[index(parameter)].elements);
}

void Executor::backward(const plan::Instruction& instruction, Running& running) {
  const plan::Arguments& arguments = instruction.arguments;
  const plan::NodeSpec& spec = model_.graph.nodes[index(instruction.node_index)];
  const auto tensor = [&](int id) { return id < 0 ? at::Tensor() : running.buffers[index(id)]; };
  // The weight part, or the whole, uses the record up.
  const auto found = instruction.operation == plan::Operation::BackwardInput
                         ? running.records.end()
                         : running.records.find({instruction.micro_batch, instruction.node_index});
  nn::Record record = found == running.records.end() ? nn::Record() : std::move(found->second);
  if (found != running.records.end()) running.records.erase(found);
  for (const int id : arguments.record) record.slots.push_back(tensor(id));

  nn::BackwardArguments given;
  given.record = &record;
  given.output_gradient = tensor(arguments.output_gradient);
  given.output = tensor(arguments.pinned_output);
  given.loss_scale = running.inputs.loss_scale;
  for (std::size_t i = 0; i < arguments.inputs.size(); ++i) {
    given.inputs.push_back(tensor(arguments.inputs[i]));
    const int gradient = arguments.input_gradients[i];
    given.wanted.push_back(gradient >= 0);
    const bool in_place = gradient >= 0 && gradient == arguments.accumulated[i];
    given.add_to.push_back(in_place ? tensor(gradient) : at::Tensor());
    given.overwrite.push_back(gradient >= 0 && gradient == arguments.output_gradient &&
                              !spec.overwrites_gradient.empty() && spec.overwrites_gradient[i]);
  }
  given.parameters = parameters_of(instruction, running);
  given.weights = instruction.operation != plan::Operation::BackwardInput;
  for (std::size_t p = 0; p < arguments.parameter_gradients.size(); ++p) {
    const plan::GradientTarget& target = arguments.parameter_gradients[p];
    given.parameter_gradients.push_back(
        {gradient_target(target, spec.parameters[p], instruction, running), target.accumulate});
  }
  const std::vector<at::Tensor> gradients = model_.nodes[index(instruction.node_index)]->backward(
      context_of(instruction, running), given);
  for (std::size_t i = 0; i < arguments.inputs.size(); ++i) {
    const int id = arguments.input_gradients[i];
    if (id < 0) continue;
    const int existing = arguments.accumulated[i];
    if (existing >= 0 && existing != id) {
      const at::Tensor& fresh = gradients[i];
      const bool alias = fresh.storage().unsafeGetStorageImpl() ==
                         given.output_gradient.storage().unsafeGetStorageImpl();
      // An alias of the incoming gradient belongs to others, too: the sum takes a storage of its
      // own.
      if (alias) {
        make(instruction, id, fresh.add(running.buffers[index(existing)].view_as(fresh)), running);
        continue;
      }
      // What another stage has sent has the shape of a message.
      fresh.add_(running.buffers[index(existing)].view_as(fresh));
    }
    make(instruction, id, gradients[i], running);
  }
}

// Own shard of the sum, wherever it is.
at::Tensor Executor::shard_gradient(const plan::Bucket& bucket, const Running& running) const {
  if (bucket.shard.gradient >= 0) return running.buffers[index(bucket.shard.gradient)];
  return running.buffers[index(bucket.buffer)].narrow(
      0, bucket.shard.elements * machine_.state->member, bucket.shard.elements);
}

void Executor::sum_squares(const plan::Instruction& instruction, Running& running) {
  const Coordinates& here = program_.coordinates;
  // By parameter and not by bucket, so that the sum does not depend on how gradients are grouped.
  std::vector<double> squares(program_.parameters.size(), 0.0);
  for (const auto& bucket : program_.buckets) {
    // Every data rank counts its own shard.
    for (const auto& piece : program_.zero == 0
                                 ? std::vector<plan::ShardPiece>()
                                 : plan::shard_pieces(bucket, machine_.state->member)) {
      const plan::ParameterBuffers& ids = program_.parameters[index(piece.parameter)];
      const at::Tensor gradient =
          shard_gradient(bucket, running).narrow(0, piece.offset, piece.elements);
      if (machine_.watch_gradient) machine_.watch_gradient(piece.parameter, gradient);
      if (!ids.counted || (here.tensor != 0 && ids.replicated)) continue;
      squares[index(piece.parameter)] = kernels::sum_of_squares(
          Queue(), nn::element_type_of(gradient), gradient.const_data_ptr(), gradient.numel());
    }
    for (std::size_t k = 0; program_.zero == 0 && k < bucket.parameters.size(); ++k) {
      const at::Tensor& buffer = running.buffers[index(bucket.buffer)];
      const int p = bucket.parameters[k];
      const plan::ParameterBuffers& ids = program_.parameters[index(p)];
      const at::Tensor gradient =
          buffer.narrow(0, bucket.offsets[k], model_.graph.parameters[index(p)].elements);
      if (machine_.watch_gradient) machine_.watch_gradient(p, gradient);
      const bool counts = ids.counted && here.data == 0 && (here.tensor == 0 || !ids.replicated);
      if (!counts) continue;
      squares[index(p)] = kernels::sum_of_squares(Queue(), nn::element_type_of(gradient),
                                                  gradient.const_data_ptr(), gradient.numel());
    }
  }
  double sum = 0;
  for (const double square : squares) sum += square;
  at::Tensor& sums = running.buffers[index(instruction.arguments.output)];
  if (!sums.defined()) {
    make(instruction, instruction.arguments.output, at::zeros({2}, at::kDouble), running);
  }
  auto* values = sums.data_ptr<double>();
  // Tensor ranks all know the loss of their samples.
  if (here.tensor != 0) values[0] = 0;
  values[1] = sum;
}

void Executor::norm(const plan::Instruction& instruction, Running& running) {
  const double sum = running.buffers[index(program_.loss_sum)].const_data_ptr<double>()[1];
  at::Tensor result = at::empty({1}, at::kDouble);
  *result.data_ptr<double>() = std::sqrt(sum);
  make(instruction, instruction.arguments.output, result, running);
  const double loss = *running.buffers[index(program_.loss_sum)].const_data_ptr<double>();
  if (!std::isfinite(loss) || !std::isfinite(sum)) {
    const std::string what = fmt::format(
        "step {}: the {} is {}; nothing was updated. Lower optimizer.learning_rate or set "
        "optimizer.clip_norm, in another run.directory: the same command would go on from the last "
        "checkpoint with the same rate",
        running.inputs.step, std::isfinite(loss) ? "gradient norm" : "loss",
        std::isfinite(loss) ? std::sqrt(sum) : loss);
    // These are sums over all ranks, so all of them see the same.
    throw dist::AgreedError(ExitCode::Refused, what);
  }
  running.gradient_scale = optim::clip_scale(std::sqrt(sum), running.inputs.clip_norm);
}

void Executor::update(const plan::Instruction& instruction, Running& running) {
  const plan::Bucket& bucket = program_.buckets[index(instruction.node_index)];
  if (program_.zero > 0) return update_shard(bucket, running);
  const at::Tensor& buffer = running.buffers[index(bucket.buffer)];
  for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
    const int p = bucket.parameters[k];
    ParameterState& state = machine_.state->parameters[index(p)];
    optim::ParameterUpdate update;
    update.parameter = state.trained();
    update.states = state.states;
    update.gradient =
        buffer.narrow(0, bucket.offsets[k], model_.graph.parameters[index(p)].elements);
    if (state.master.defined()) update.compute_copy = state.parameter;
    update.decays = model_.graph.parameters[index(p)].decays;
    update.complex = model_.graph.parameters[index(p)].complex;
    machine_.optimizer->update(Queue(), update, running.inputs.step, running.inputs.learning_rate,
                               running.gradient_scale);
  }
}

// Whether a parameter decays is its own: each is updated as far as it lies in the shard.
void Executor::update_shard(const plan::Bucket& bucket, Running& running) {
  const auto number = index(bucket_of_[index(bucket.parameters.front())]);
  ShardState& shard = machine_.state->shards[number];
  const at::Tensor gradient = shard_gradient(bucket, running);
  for (const auto& piece : plan::shard_pieces(bucket, machine_.state->member)) {
    const auto part = [&](const at::Tensor& whole) {
      return whole.narrow(0, piece.offset, piece.elements);
    };
    optim::ParameterUpdate update;
    update.parameter = part(shard.trained());
    for (const auto& state : shard.states) update.states.push_back(part(state));
    update.gradient = part(gradient);
    if (shard.master.defined()) update.compute_copy = part(shard.parameter);
    update.decays = model_.graph.parameters[index(piece.parameter)].decays;
    update.complex = model_.graph.parameters[index(piece.parameter)].complex;
    machine_.optimizer->update(Queue(), update, running.inputs.step, running.inputs.learning_rate,
                               running.gradient_scale);
  }
}

void Executor::report(const plan::Instruction& instruction, Running& running) {
  if (program_.loss_sum >= 0) {
    running.outputs.loss = *running.buffers[index(program_.loss_sum)].const_data_ptr<double>();
    running.outputs.gradient_norm =
        *running.buffers[index(program_.gradient_norm)].const_data_ptr<double>();
    return;
  }
  if (instruction.arguments.inputs.empty()) return;
  const at::Tensor& value = running.buffers[index(instruction.arguments.inputs[0])];
  // The copy handed out is the caller's, so it is made on the host, element by element.
  running.outputs.report.resize(static_cast<std::size_t>(value.numel()));
  for (std::int64_t i = 0; i < value.numel(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    switch (value.scalar_type()) {
      case at::kDouble:
        running.outputs.report[at] = value.const_data_ptr<double>()[i];
        break;
      case at::kFloat:
        running.outputs.report[at] = static_cast<double>(value.const_data_ptr<float>()[i]);
        break;
      default:
        running.outputs.report[at] = static_cast<double>(value.const_data_ptr<at::BFloat16>()[i]);
        break;
    }
  }
}

}  // namespace garonne::exec
