#include "exec/executor.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "exec/executor_running.hpp"
#include "exec/host_access.hpp"
#include "exec/matrix_part.hpp"
#include "kernels/reduction.hpp"
#include "kernels/scalar.hpp"
#include "nn/element_type.hpp"
#include "nn/tensor_options.hpp"

namespace garonne::exec {
namespace {

// Whether the buffer is there before.
bool updates(const plan::Instruction& instruction, int buffer) {
  return std::find(instruction.reads.begin(), instruction.reads.end(), buffer) !=
         instruction.reads.end();
}

template <typename Number>
at::Tensor loaded_tensor(const std::map<std::string, std::vector<Number>>& batch,
                         const plan::ValueSpec& spec) {
  const std::vector<Number>& values = loaded_values(batch, spec);
  at::Tensor tensor = at::empty(spec.shape, nn::host_tensor_options(nn::scalar_type_of(spec.type)));
  copy_in(tensor, values);
  return tensor;
}

std::string text_of(const char* type, at::IntArrayRef shape) {
  return fmt::format("{} [{}]", type, fmt::join(shape, ", "));
}

// `what` it is of the value.
void expect_declared(const plan::Instruction& instruction, const plan::ValueSpec& spec,
                     const at::Tensor& made, const char* what = "") {
  const at::ScalarType type = nn::scalar_type_of(spec.type);
  if (made.scalar_type() == type && made.sizes() == spec.shape) return;
  throw InternalError(fmt::format("{} made {}{} as {} where the model declares {}",
                                  plan::describe(instruction), what, spec.name,
                                  text_of(at::toString(made.scalar_type()), made.sizes()),
                                  text_of(at::toString(type), spec.shape)));
}

// In the type and shape of the value whose gradient it is.
at::Tensor as_gradient(const plan::Instruction& instruction, const plan::ValueSpec& spec,
                       const at::Tensor& made) {
  const bool other = made.sizes() != spec.shape && made.numel() == spec.elements();
  const at::Tensor gradient = other ? made.view(spec.shape) : made;
  expect_declared(instruction, spec, gradient, "the gradient of ");
  return gradient;
}

}  // namespace

Executor::Executor(const nn::Model& model, const plan::Program& program,
                   const RankResources& resources)
    : model_(model), program_(program), resources_(resources) {
  expect(program.tier(Tier::Device).granularity == resources.tier->granularity(),
         fmt::format("the Program counts memory in multiples of {} B, and the device in {} B",
                     program.tier(Tier::Device).granularity, resources.tier->granularity()));
  for (const plan::Buffer& buffer : program.buffers) {
    if (buffer.tier == Tier::Device) continue;
    device::TierMemory* const memory = memory_below(buffer.tier);
    expect(memory != nullptr && memory->granularity() == program.tier(buffer.tier).granularity,
           fmt::format("the Program has {} on the tier {}, which is not there or counts otherwise",
                       buffer.name, to_string(buffer.tier)));
  }
  static_buffers_ = StaticBuffers(resources.state->buffers, program);
  for (const plan::Instruction& instruction : program.instructions) {
    activities_.push_back(plan::describe(instruction));
    updates_ = updates_ || instruction.operation == plan::Operation::Update;
    rotated_ = rotated_ || instruction.of_previous_step;
  }
}

void Executor::execute(const plan::Instruction& instruction, std::size_t number, Running& running) {
  switch (instruction.operation) {
    case plan::Operation::Load:
      return make_loaded(number, running);
    case plan::Operation::Forward:
    case plan::Operation::ForwardKeep:
      if (instruction.arguments.exchanged >= 0) return begin_pass(instruction, running);
      return forward(instruction, instruction.operation == plan::Operation::ForwardKeep, running);
    case plan::Operation::Backward:
    case plan::Operation::BackwardWeight:
    case plan::Operation::BackwardInput:
      if (instruction.arguments.exchanged >= 0) return begin_pass(instruction, running);
      return backward(instruction, running);
    case plan::Operation::FinishForward:
    case plan::Operation::FinishBackward:
      return finish_pass(instruction, running);
    case plan::Operation::EmitLoss:
      return emit_loss(instruction, running);
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
    case plan::Operation::CopyOut:
    case plan::Operation::CopyIn:
    case plan::Operation::DiskWrite:
    case plan::Operation::DiskRead:
      return copy(instruction, number, running);
    case plan::Operation::Wait:
      return await_transfer(as_index(instruction.completes), running);
    case plan::Operation::SumSquares:
      return sum_squares(instruction, running);
    case plan::Operation::Norm:
      return norm(instruction, running);
    case plan::Operation::SumTensors:
      return sum_tensors(instruction, running);
    case plan::Operation::Update:
      return update(instruction, running);
    case plan::Operation::UpdateHost:
      return update_on_host(instruction, number, running);
    case plan::Operation::Report:
      return read_report(number, running);
  }
}

void Executor::make(const plan::Instruction& instruction, int buffer, const at::Tensor& tensor,
                    Running& running) const {
  expect_of(instruction, buffer >= 0, "makes a buffer that the Program does not name");
  running.buffers[as_index(buffer)] = tensor;
}

nn::Context Executor::context_of(const plan::Instruction& instruction,
                                 const Running& running) const {
  nn::Context context;
  context.queue = queue();
  context.precision = resources_.state->precision;
  context.seed = running.inputs.seed;
  context.step = static_cast<std::uint64_t>(running.inputs.step);
  if (has_step_numbers())
    context.step_place = reinterpret_cast<const std::uint64_t*>(resources_.step_numbers);
  context.training = running.inputs.training;
  const auto& samples = running.samples[as_index(instruction.micro_batch)];
  // Memory that kernels of the device reach, as the host does.
  context.samples = samples.data();
  context.batch = static_cast<std::int64_t>(samples.size());
  context.products = resources_.products;
  if (resources_.staging != nullptr) context.tables = &resources_.state->tables;
  if (resources_.tensor != nullptr) {
    context.tensor_member = resources_.tensor->member();
    context.tensor_members = resources_.tensor->size();
  }
  return context;
}

HostBatch Executor::load_batch(int micro_batch, Running& running) {
  const auto start = std::chrono::steady_clock::now();
  HostBatch batch = running.inputs.load(micro_batch);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  running.outputs.data_seconds += taken.count();
  return batch;
}

std::vector<at::Tensor> Executor::loaded(const plan::Instruction& instruction,
                                         Running& running) const {
  HostBatch batch = load_batch(instruction.micro_batch, running);
  if (batch.samples.empty()) {
    running.lacks_data = true;
    batch.samples.assign(static_cast<std::size_t>(model_.batch), 0);
  }
  std::vector<at::Tensor> tensors;
  for (const plan::LoadedValue& value : instruction.arguments.loaded) {
    const plan::ValueSpec& spec = model_.graph.values[as_index(value.value)];
    tensors.push_back(spec.type == NumberType::Int64 ? loaded_tensor(batch.values, spec)
                                                     : loaded_tensor(batch.fields, spec));
  }
  auto& samples = running.on_host[as_index(instruction.micro_batch)];
  samples = std::move(batch.samples);
  running.samples[as_index(instruction.micro_batch)] = samples;
  return tensors;
}

// Where the host has loaded already, with room for what is copied in.
void Executor::make_loaded(std::size_t number, Running& running) {
  const plan::Instruction& instruction = program_.instructions[number];
  const std::vector<at::Tensor> tensors = memory_apart()
                                              ? running.staged[as_index(instruction.micro_batch)]
                                              : loaded(instruction, running);
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    make(instruction, instruction.arguments.loaded[k].buffer,
         memory_apart() ? at::empty_like(tensors[k]) : tensors[k], running);
  }
}

void Executor::forward(const plan::Instruction& instruction, bool keep, Running& running) {
  const plan::NodeSpec& spec = model_.graph.nodes[as_index(instruction.node_index)];
  const nn::Node& node = *model_.nodes[as_index(instruction.node_index)];
  std::vector<at::Tensor> inputs;
  for (const int id : instruction.arguments.inputs) inputs.push_back(running.buffers[as_index(id)]);
  const std::vector<at::Tensor> parameters = parameters_of(instruction, running);
  nn::Record record;
  record.option = instruction.arguments.keep_option;
  const at::Tensor output =
      node.forward(context_of(instruction, running), inputs, parameters, keep ? &record : nullptr);
  expect_declared(instruction, model_.graph.values[as_index(spec.output)], output);
  make(instruction, instruction.arguments.output, output, running);
  if (!keep) return;
  expect_of(instruction, record.slots.size() == instruction.arguments.record.size(),
            "kept another number of private slots than declared");
  for (std::size_t slot = 0; slot < record.slots.size(); ++slot) {
    make(instruction, instruction.arguments.record[slot], record.slots[slot], running);
  }
}

at::Tensor Executor::part(const plan::Range& range, const Running& running) const {
  const at::Tensor& buffer = running.buffers[as_index(range.buffer)];
  return (buffer.dim() == 1 ? buffer : buffer.view({-1})).narrow(0, range.offset, range.elements);
}

std::vector<at::Tensor> Executor::parameters_of(const plan::Instruction& instruction,
                                                const Running& running) const {
  const plan::NodeSpec& node = model_.graph.nodes[as_index(instruction.node_index)];
  std::vector<at::Tensor> parameters;
  for (std::size_t k = 0; k < instruction.arguments.parameters.size(); ++k) {
    const plan::Range& range = instruction.arguments.parameters[k];
    const at::Tensor& buffer = running.buffers[as_index(range.buffer)];
    const auto& shape = model_.graph.parameters[as_index(node.parameters[k])].shape;
    parameters.push_back(buffer.sizes() == shape ? buffer : part(range, running).view(shape));
  }
  return parameters;
}

// The buffers of gradients that the instruction is the first to write to, each of which may have
// several targets.
void Executor::make_targets(const plan::Instruction& instruction, Running& running) const {
  const std::vector<plan::GradientTarget>& targets = instruction.arguments.parameter_gradients;
  for (const int id : instruction.writes) {
    const bool is_target = std::any_of(targets.begin(), targets.end(), [&](const auto& target) {
      return target.range.buffer == id;
    });
    if (!is_target || updates(instruction, id)) continue;
    make(instruction, id,
         at::empty({program_.buffers[as_index(id)].elements},
                   options(nn::state_scalar_type(resources_.state->precision))),
         running);
  }
  for (const plan::Range& range : instruction.arguments.zeroed) part(range, running).zero_();
}

void Executor::backward(const plan::Instruction& instruction, Running& running) {
  const plan::Arguments& arguments = instruction.arguments;
  const plan::NodeSpec& node = model_.graph.nodes[as_index(instruction.node_index)];
  const auto tensor = [&](int id) { return id < 0 ? at::Tensor() : running.buffers[as_index(id)]; };
  nn::Record record;
  record.option = arguments.keep_option;
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
    const plan::Placement placement = arguments.placements[i];
    given.add_to.push_back(placement == plan::Placement::AddInPlace ? tensor(gradient)
                                                                    : at::Tensor());
    given.overwrite.push_back(placement == plan::Placement::Overwrite);
  }
  given.parameters = parameters_of(instruction, running);
  given.weights = instruction.operation != plan::Operation::BackwardInput;
  make_targets(instruction, running);
  for (const plan::GradientTarget& target : arguments.parameter_gradients)
    given.parameter_gradients.push_back({part(target.range, running), target.accumulate});
  const std::vector<at::Tensor> gradients =
      model_.nodes[as_index(instruction.node_index)]->backward(context_of(instruction, running),
                                                               given);
  for (std::size_t i = 0; i < arguments.inputs.size(); ++i) {
    const int id = arguments.input_gradients[i];
    if (id < 0) continue;
    const at::Tensor made =
        as_gradient(instruction, model_.graph.values[as_index(node.inputs[i])], gradients[i]);
    const bool shares = given.output_gradient.defined() &&
                        made.storage().unsafeGetStorageImpl() ==
                            given.output_gradient.storage().unsafeGetStorageImpl();
    const plan::Placement placement = arguments.placements[i];
    const bool aliases = placement == plan::Placement::Alias ||
                         placement == plan::Placement::Overwrite ||
                         placement == plan::Placement::SumWithAlias;
    expect_of(instruction, shares == aliases || placement == plan::Placement::AddInPlace,
              "has a gradient in another storage than planned");
    if (placement == plan::Placement::SumWithAlias) {
      make(instruction, id, made.add(tensor(arguments.accumulated[i])), running);
      continue;
    }
    if (placement == plan::Placement::AddExisting) made.add_(tensor(arguments.accumulated[i]));
    make(instruction, id, made, running);
  }
}

void Executor::emit_loss(const plan::Instruction& instruction, Running& running) {
  const int sum = instruction.arguments.output;
  if (!updates(instruction, sum)) {
    make(instruction, sum, at::zeros({2}, options(at::kDouble)), running);
  }
  const at::Tensor& loss = running.buffers[as_index(instruction.arguments.inputs[0])];
  kernels::add_scaled(queue(), {.place = loss.const_data_ptr<double>()}, running.inputs.loss_scale,
                      running.buffers[as_index(sum)].data_ptr<double>());
}

void Executor::sum_squares(const plan::Instruction& instruction, Running& running) {
  const int output = instruction.arguments.output;
  if (!updates(instruction, output)) {
    make(instruction, output, at::zeros({2}, options(at::kDouble)), running);
  }
  const at::Tensor& sums = running.buffers[as_index(output)];
  if (instruction.arguments.drops_loss) sums.narrow(0, 0, 1).zero_();
  // In the sum of all ranks, so that the step ends on all of them, and nothing is updated.
  if (running.lacks_data) sums.narrow(0, 0, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  // Piece by piece, so that the sum does not depend on how gradients are grouped.
  for (const int id : instruction.arguments.pieces) {
    const plan::Piece& piece = program_.pieces[as_index(id)];
    const at::Tensor gradient = part(piece.gradient, running);
    if (resources_.watch_gradient) {
      resources_.watch_gradient(piece.parameter, resources_.staging == nullptr
                                                     ? gradient
                                                     : copied_out(gradient, *resources_.staging));
    }
    if (!piece.counted) continue;
    kernels::add_sum_of_squares(queue(), nn::element_type_of(gradient), gradient.const_data_ptr(),
                                gradient.numel(), sums.data_ptr<double>() + 1);
  }
}

void Executor::norm(const plan::Instruction& instruction, Running& running) {
  const at::Tensor& sums = running.buffers[as_index(instruction.arguments.inputs[0])];
  // The norm, and the scale of the updates, which fits into the same granule.
  const at::Tensor result = at::empty({2}, options(at::kDouble));
  kernels::clip_scale(queue(), sums.const_data_ptr<double>(), sums.const_data_ptr<double>() + 1,
                      running.inputs.clip_norm, result.data_ptr<double>(),
                      result.data_ptr<double>() + 1);
  make(instruction, instruction.arguments.output, result, running);
}

std::vector<optim::ParameterUpdate> Executor::updates_of(
    const plan::Instruction& instruction,
    const std::function<at::Tensor(const plan::Range& range)>& part) const {
  std::vector<optim::ParameterUpdate> updates;
  for (const int id : instruction.arguments.pieces) {
    const plan::Piece piece = plan::piece_of(program_, instruction, id);
    const plan::ParameterSpec& spec = model_.graph.parameters[as_index(piece.parameter)];
    optim::ParameterUpdate update;
    update.parameter = part(piece.trained);
    for (const plan::Range& state : piece.states) update.states.push_back(part(state));
    update.gradient = part(piece.gradient);
    // Sums read what is trained; the copy may be elsewhere.
    if (piece.compute_copy.buffer >= 0 && plan::is_update(instruction.operation))
      update.compute_copy = part(piece.compute_copy);
    update.decays = spec.decays;
    update.weight_decay = spec.weight_decay;
    update.complex = spec.complex;
    update.matrix = spec.shape.size() > 1;
    update.part = matrix_part(model_.boxes[as_index(piece.parameter)], spec, piece.first,
                              piece.trained.elements);
    updates.push_back(std::move(update));
  }
  return updates;
}

std::vector<optim::ParameterUpdate> Executor::updates_on_device(
    const plan::Instruction& instruction, std::span<const int> sums, const Running& running) const {
  std::vector<optim::ParameterUpdate> updates =
      updates_of(instruction, [&](const plan::Range& range) { return part(range, running); });
  for (std::size_t k = 0; k < updates.size(); ++k) {
    if (has_step_numbers()) {
      updates[k].rates =
          reinterpret_cast<const double*>(resources_.step_numbers + sizeof(std::uint64_t));
    }
    const auto& own = program_.pieces[as_index(instruction.arguments.pieces[k])].sums;
    for (std::size_t round = 0; round < sums.size(); ++round) {
      expect_of(instruction, round < own.size() && own[round].buffer == sums[round],
                "takes the sums of other parameters");
      updates[k].sums.push_back(part(own[round], running));
    }
  }
  return updates;
}

// Piece by piece, in their order.
void Executor::sum_tensors(const plan::Instruction& instruction, Running& running) {
  const int sums = instruction.arguments.output;
  make(instruction, sums,
       at::zeros({program_.buffers[as_index(sums)].elements}, options(at::kDouble)), running);
  const std::vector<int>& inputs = instruction.arguments.inputs;
  const at::Tensor& norm = running.buffers[as_index(inputs[0])];
  const kernels::Scalar scale = kernels::Scalar{.place = norm.const_data_ptr<double>() + 1};
  const std::size_t round = inputs.size() - 1;
  std::vector<int> rounds(inputs.begin() + 1, inputs.end());
  rounds.push_back(sums);
  for (const optim::ParameterUpdate& update : updates_on_device(instruction, rounds, running)) {
    resources_.optimizer->add_sums(queue(), update, round, running.inputs.step,
                                   running.inputs.learning_rate, scale);
  }
}

// Whether a parameter decays is its own: each is updated by itself.
void Executor::update(const plan::Instruction& instruction, Running& running) {
  if (instruction.arguments.pieces.empty()) return;
  const std::vector<int>& inputs = instruction.arguments.inputs;
  const at::Tensor& norm = running.buffers[as_index(inputs[0])];
  const kernels::Scalar scale = kernels::Scalar{.place = norm.const_data_ptr<double>() + 1};
  expect_of(instruction, inputs.size() - 1 == resources_.optimizer->sums().size(),
            "has sums of whole parameters of other rounds than the optimizer takes");
  for (const optim::ParameterUpdate& update :
       updates_on_device(instruction, std::span(inputs).subspan(1), running)) {
    resources_.optimizer->update(queue(), update, running.inputs.step, running.inputs.learning_rate,
                                 scale);
  }
}

// The one place where the host reads what the step has computed.
void Executor::read_report(std::size_t number, Running& running) {
  const std::vector<int>& inputs = program_.instructions[number].arguments.inputs;
  if (inputs.empty()) return;
  const auto reported = [&](int id) {
    const at::Tensor& tensor = running.buffers[as_index(id)];
    return resources_.staging == nullptr ? copy_out(tensor) : copy_out(tensor, *resources_.staging);
  };
  std::vector<double> values = reported(inputs[0]);
  if (inputs.size() == 1) {
    running.outputs.report = std::move(values);
    return;
  }
  running.outputs.loss = values.at(0);
  running.outputs.gradient_norm = reported(inputs[1]).at(0);
}

}  // namespace garonne::exec
