#include "plan/program/program.hpp"

#include <fmt/format.h>

#include "base/error.hpp"

namespace garonne::plan {

StateBlocks blocks_of(const Program& program, std::size_t number) {
  return program.state_blocks.empty() ? StateBlocks() : program.state_blocks.at(number);
}

std::string_view to_string(BufferKind kind) {
  switch (kind) {
    case BufferKind::Parameter:
      return "parameter";
    case BufferKind::MasterParameter:
      return "master-parameter";
    case BufferKind::OptimizerState:
      return "optimizer-state";
    case BufferKind::Gradient:
      return "gradient";
    case BufferKind::Value:
      return "value";
    case BufferKind::Record:
      return "record";
    case BufferKind::ValueGradient:
      return "value-gradient";
    case BufferKind::Communication:
      return "communication";
    case BufferKind::Scalar:
      return "scalar";
    case BufferKind::GatheredParameter:
      return "gathered-parameter";
    case BufferKind::Workspace:
      return "workspace";
  }
  return "unknown";
}

std::string_view to_string(Operation operation) {
  switch (operation) {
    case Operation::Load:
      return "load";
    case Operation::Forward:
      return "forward";
    case Operation::ForwardKeep:
      return "forward-keep";
    case Operation::Backward:
      return "backward";
    case Operation::BackwardWeight:
      return "backward-weight";
    case Operation::BackwardInput:
      return "backward-input";
    case Operation::FinishForward:
      return "finish-forward";
    case Operation::FinishBackward:
      return "finish-backward";
    case Operation::EmitLoss:
      return "emit-loss";
    case Operation::Send:
      return "send";
    case Operation::Receive:
      return "receive";
    case Operation::AllReduce:
      return "all-reduce";
    case Operation::ReduceScatter:
      return "reduce-scatter";
    case Operation::AllGather:
      return "all-gather";
    case Operation::KeepShard:
      return "keep-shard";
    case Operation::CopyOut:
      return "copy-out";
    case Operation::CopyIn:
      return "copy-in";
    case Operation::DiskWrite:
      return "disk-write";
    case Operation::DiskRead:
      return "disk-read";
    case Operation::Wait:
      return "wait";
    case Operation::SumSquares:
      return "sum-squares";
    case Operation::Norm:
      return "norm";
    case Operation::SumTensors:
      return "sum-tensors";
    case Operation::Update:
      return "update";
    case Operation::UpdateHost:
      return "update-host";
    case Operation::Report:
      return "report";
  }
  return "unknown";
}

Piece piece_of(const Program& program, const Instruction& instruction, int number) {
  Piece piece = program.pieces.at(static_cast<std::size_t>(number));
  const auto stand_in = [&](Range& range) {
    for (const StandIn& one : instruction.arguments.stand_ins) {
      if (one.buffer != range.buffer) continue;
      range.buffer = one.on_host;
      return;
    }
  };
  stand_in(piece.gradient);
  stand_in(piece.trained);
  for (Range& state : piece.states) stand_in(state);
  if (piece.compute_copy.buffer >= 0) stand_in(piece.compute_copy);
  return piece;
}

std::optional<Operation> copy_between(Tier from, Tier to) {
  if (from == to) return std::nullopt;
  if (to == Tier::Disk) return Operation::DiskWrite;
  if (from == Tier::Disk) return Operation::DiskRead;
  return from == Tier::Device ? Operation::CopyOut : Operation::CopyIn;
}

Lane lane_of_copy(Operation operation) {
  switch (operation) {
    case Operation::CopyOut:
      return Lane::CopyOut;
    case Operation::CopyIn:
      return Lane::CopyIn;
    case Operation::DiskWrite:
      return Lane::DiskWrite;
    case Operation::DiskRead:
      return Lane::DiskRead;
    default:
      throw InternalError("a copy's lane is asked of " + std::string(to_string(operation)));
  }
}

std::string_view to_string(Placement placement) {
  switch (placement) {
    case Placement::None:
      return "none";
    case Placement::Fresh:
      return "fresh";
    case Placement::Alias:
      return "alias";
    case Placement::Overwrite:
      return "overwrite";
    case Placement::AddInPlace:
      return "add-in-place";
    case Placement::AddExisting:
      return "add-existing";
    case Placement::SumWithAlias:
      return "sum-with-alias";
  }
  return "unknown";
}

std::string describe(const Instruction& instruction) {
  std::string text = fmt::format("{} {}", to_string(instruction.operation), instruction.node);
  if (instruction.recompute) text = "recompute: " + text;
  if (instruction.micro_batch >= 0)
    text += fmt::format(" (micro-batch {})", instruction.micro_batch);
  if (instruction.of_previous_step) text += " (of the previous step)";
  return text;
}

}  // namespace garonne::plan
