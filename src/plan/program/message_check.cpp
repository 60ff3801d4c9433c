#include "plan/program/message_check.hpp"

#include <fmt/format.h>

#include <string_view>

#include "base/contains.hpp"
#include "base/index.hpp"

namespace garonne::plan {
namespace {

// What a message or its answer is of: on one side named by the node that hands over, on the other
// by the value or its gradient.
std::string_view value_of(std::string_view name) {
  constexpr std::string_view node = "hand-over.";
  constexpr std::string_view gradient = ".gradient";
  if (name.starts_with(node)) name.remove_prefix(node.size());
  if (name.ends_with(gradient)) name.remove_suffix(gradient.size());
  return name;
}

// The buffers are each rank's own.
bool same_part(const Range& a, const Range& b) {
  return a.offset == b.offset && a.elements == b.elements;
}

}  // namespace

std::string wrong_part(const Program& program, const Instruction& message) {
  const Arguments& arguments = message.arguments;
  const Range& part = arguments.part;
  const bool sends = message.operation == Operation::Send;
  const bool of_message =
      sends ? contains(arguments.inputs, part.buffer) : part.buffer == arguments.output;
  if (!of_message)
    return sends ? "sends a part of something else" : "receives a part of something else";
  const Buffer& whole = program.buffers[as_index(part.buffer)];
  if (part.elements <= 0 || whole.elements % part.elements != 0 ||
      part.offset != part.elements * program.coordinates.tensor)
    return "is another part of the message than that of its tensor rank";
  if (message.channel && message.channel->bytes != part.elements * whole.element_bytes)
    return "sends another number of bytes than its part has";
  return "";
}

std::string wrong_gather(const Program& program, const Instruction& gather) {
  const Arguments& arguments = gather.arguments;
  if (arguments.output != arguments.inputs[0] || arguments.exchanged >= 0)
    return "gathers a message into something else";
  const Buffer& whole = program.buffers[as_index(arguments.output)];
  const auto& channel = gather.channel;
  if (!channel || channel->group != GroupAxis::Tensor || channel->bytes <= 0 ||
      channel->bytes != whole.elements * whole.element_bytes)
    return "gathers a message from others than the tensor ranks, or not all of it";
  return "";
}

std::string wrong_receive(const Instruction& receive, const Instruction& send, int sender) {
  if (send.channel->bytes != receive.channel->bytes)
    return fmt::format("expects {} B where rank {} sends {} B", receive.channel->bytes, sender,
                       send.channel->bytes);
  if (!same_part(send.arguments.part, receive.arguments.part))
    return fmt::format("expects another part of the message than rank {} sends", sender);
  if (send.micro_batch != receive.micro_batch || value_of(send.node) != value_of(receive.node))
    return fmt::format("gets what rank {} sends as {}", sender, describe(send));
  return "";
}

}  // namespace garonne::plan
