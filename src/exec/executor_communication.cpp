// What the executor does over ranks.
#include <ATen/Functions.h>

#include <optional>

#include "base/error.hpp"
#include "base/index.hpp"
#include "base/number_type.hpp"
#include "exec/executor.hpp"
#include "exec/executor_running.hpp"
#include "nn/element_type.hpp"

namespace garonne::exec {
namespace {

// Ranks sum no other numbers.
dist::SumType sum_type(const plan::Instruction& instruction, const at::Tensor& data) {
  const std::optional<NumberType> wire = instruction.channel->wire;
  if (wire) {
    expect(*wire == NumberType::BFloat16, "a sum travels in bfloat16, or as it is kept");
    if (data.scalar_type() == at::kBFloat16) return dist::ScalarType::BFloat16;
    expect(data.scalar_type() == at::kFloat, "a sum in bfloat16 of what is not kept in float32");
    return {dist::ScalarType::Float32, dist::ScalarType::BFloat16};
  }
  if (data.scalar_type() == at::kDouble) return dist::ScalarType::Float64;
  expect(data.scalar_type() == at::kFloat, "a sum over ranks of what is neither float nor double");
  return dist::ScalarType::Float32;
}

}  // namespace

dist::Transport& Executor::transport_of(const plan::Instruction& instruction) const {
  const plan::GroupAxis group = instruction.channel.value().group;
  dist::Transport* found = nullptr;
  switch (group) {
    case plan::GroupAxis::Data:
      found = resources_.data;
      break;
    case plan::GroupAxis::Pipeline:
      found = resources_.pipeline;
      break;
    case plan::GroupAxis::Tensor:
      found = resources_.tensor;
      break;
    case plan::GroupAxis::Tied:
      found = resources_.tied;
      break;
    case plan::GroupAxis::World:
      found = resources_.world;
      break;
  }
  expect(found != nullptr, plan::describe(instruction) + " communicates in the group " +
                               std::string(to_string(group)) + " without transport");
  return *found;
}

std::string Executor::last_exchange() const {
  const std::int64_t number = last_exchange_;
  return number < 0 ? std::string() : activities_[as_index(number)];
}

void Executor::await_transfer(std::size_t number, Running& running) {
  Transfer& transfer = running.transfers.at(number);
  if (transfer.copies) {
    expect(!transfer.joined, "a second wait for a copy");
    // Where lanes are put to work from another thread, that has ordered them already.
    if (!memory_apart()) resources_.device->order(Lane::Compute, running.marks.at(number));
    transfer.joined = true;
    return;
  }
  expect(transfer.transport != nullptr && !transfer.joined, "a wait without its reduction");
  transfer.transport->wait(transfer.ticket);
  transfer.joined = true;
  last_exchange_ = static_cast<std::int64_t>(number);
}

// What it does is started by the lane of the instruction.
void Executor::hand_to_transport(std::size_t number, Running& running, dist::Transport& transport,
                                 std::function<dist::Ticket()> start) {
  Transfer& transfer = running.transfers[number];
  transfer.transport = &transport;
  transfer.start = std::move(start);
}

// What goes of the whole tensor.
at::Tensor Executor::message_part(const plan::Instruction& instruction, const at::Tensor& whole,
                                  const Running& running) const {
  return is_part_of_message(instruction) ? part(instruction.arguments.part, running) : whole;
}

void Executor::send(const plan::Instruction& instruction, std::size_t number, Running& running) {
  const at::Tensor& data = running.buffers[as_index(instruction.arguments.inputs[0])];
  const plan::Channel& channel = instruction.channel.value();
  if (instruction.arguments.output >= 0) {
    make(instruction, instruction.arguments.output, at::empty({0}, data.options()), running);
  }
  expect_of(instruction, data.is_contiguous(), "sends what is not contiguous");
  const at::Tensor sent = message_part(instruction, data, running);
  dist::Transport& transport = transport_of(instruction);
  hand_to_transport(number, running, transport,
                    [&transport, &channel, address = sent.const_data_ptr(),
                     bytes = static_cast<std::int64_t>(sent.nbytes())] {
                      return transport.send(address, bytes, channel.peer, channel.tag);
                    });
}

void Executor::receive(const plan::Instruction& instruction, std::size_t number, Running& running) {
  const plan::Channel& channel = instruction.channel.value();
  // A gradient has the shape of the value that was handed over.
  const plan::ValueSpec& spec = model_.graph.values.at(as_index(instruction.arguments.value));
  at::Tensor tensor = at::empty(spec.shape, options(nn::scalar_type_of(spec.type)));
  make(instruction, instruction.arguments.output, tensor, running);
  const at::Tensor received = message_part(instruction, tensor, running);
  dist::Transport& transport = transport_of(instruction);
  hand_to_transport(number, running, transport,
                    [&transport, &channel, address = received.data_ptr(),
                     bytes = static_cast<std::int64_t>(received.nbytes())] {
                      return transport.receive(address, bytes, channel.peer, channel.tag);
                    });
}

// What a sum over ranks takes besides its data; the staging buffer is made.
Executor::SumOverRanks Executor::sum_over_ranks(const plan::Instruction& instruction,
                                                Running& running) {
  const int staging = instruction.arguments.staging;
  at::Tensor scratch = at::empty({program_.buffers[as_index(staging)].bytes}, options(at::kByte));
  make(instruction, staging, scratch, running);
  const at::Tensor& data = running.buffers[as_index(instruction.arguments.inputs[0])];
  return {data, sum_type(instruction, data), transport_of(instruction), scratch};
}

void Executor::all_reduce(const plan::Instruction& instruction, std::size_t number,
                          Running& running) {
  const SumOverRanks sum = sum_over_ranks(instruction, running);
  // The buffer may end in padding, for which there is no staging.
  const std::int64_t elements = instruction.channel->bytes / dist::scalar_bytes(sum.type.wire);
  expect_of(instruction, elements <= sum.data.numel(), "sums more than there is");
  hand_to_transport(
      number, running, sum.transport,
      [&transport = sum.transport, elements, type = sum.type, address = sum.data.data_ptr(),
       room = sum.staging.numel() > 0 ? sum.staging.data_ptr() : nullptr] {
        return transport.all_reduce_sum(address, elements, type, room);
      });
}

void Executor::reduce_scatter(const plan::Instruction& instruction, std::size_t number,
                              Running& running) {
  const SumOverRanks sum = sum_over_ranks(instruction, running);
  hand_to_transport(number, running, sum.transport,
                    [&transport = sum.transport, type = sum.type, address = sum.data.data_ptr(),
                     elements = sum.data.numel(), room = sum.staging.data_ptr()] {
                      return transport.reduce_scatter_sum(address, elements, type, room);
                    });
}

void Executor::all_gather(const plan::Instruction& instruction, std::size_t number,
                          Running& running) {
  const int from = instruction.arguments.inputs[0];
  const int to = instruction.arguments.output;
  if (to != from) {
    const at::Tensor& shard = running.buffers[as_index(from)];
    make(instruction, to, at::empty({program_.buffers[as_index(to)].elements}, shard.options()),
         running);
    part(instruction.arguments.part, running).copy_(shard.view({-1}));
  }
  const at::Tensor& data = running.buffers[as_index(to)];
  dist::Transport& transport = transport_of(instruction);
  hand_to_transport(number, running, transport,
                    [&transport, address = data.data_ptr(), elements = data.numel(),
                     size = static_cast<std::int64_t>(data.element_size())] {
                      return transport.all_gather(address, elements, size);
                    });
}

// Of a pass that is divided, what comes before its collective.
void Executor::begin_pass(const plan::Instruction& instruction, Running& running) {
  const plan::Arguments& arguments = instruction.arguments;
  const bool forward = is_forward(instruction.operation);
  nn::DividedPass pass;
  pass.direction = forward ? nn::Direction::Forward : nn::Direction::Backward;
  pass.given = running.buffers[as_index(forward ? arguments.inputs[0] : arguments.output_gradient)];
  if (arguments.exchanged == arguments.output_gradient) pass.over = pass.given;
  const nn::Node& node = *model_.nodes[as_index(instruction.node_index)];
  make(instruction, arguments.exchanged, node.begin(context_of(instruction, running), pass),
       running);
}

void Executor::finish_pass(const plan::Instruction& instruction, Running& running) {
  const plan::Arguments& arguments = instruction.arguments;
  const bool forward = instruction.operation == plan::Operation::FinishForward;
  const int result = forward ? arguments.output : arguments.input_gradients[0];
  nn::DividedPass pass;
  pass.direction = forward ? nn::Direction::Forward : nn::Direction::Backward;
  if (!forward && arguments.placements[0] == plan::Placement::Overwrite)
    pass.over = running.buffers[as_index(result)];
  const nn::Node& node = *model_.nodes[as_index(instruction.node_index)];
  const at::Tensor& exchanged = running.buffers[as_index(arguments.exchanged)];
  const at::Tensor made = node.finish(context_of(instruction, running), pass, exchanged);
  const bool in_place =
      made.storage().unsafeGetStorageImpl() ==
      (pass.over.defined() ? pass.over : exchanged).storage().unsafeGetStorageImpl();
  expect_of(instruction, in_place == (pass.over.defined() || result == arguments.exchanged),
            "has its result in another storage than planned");
  // What another stage has sent has the shape of a message.
  if (!forward && arguments.accumulated[0] >= 0)
    made.add_(running.buffers[as_index(arguments.accumulated[0])].view_as(made));
  make(instruction, result, made, running);
}

void Executor::keep_shard(const plan::Instruction& instruction, Running& running) {
  const plan::GradientTarget& target = instruction.arguments.parameter_gradients[0];
  const at::Tensor reduced = part(instruction.arguments.part, running);
  if (target.accumulate) {
    part(target.range, running).add_(reduced);
  } else {
    make(instruction, target.range.buffer, reduced.clone(), running);
  }
}

}  // namespace garonne::exec
