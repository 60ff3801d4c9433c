#include "plan/program/program.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace garonne::plan {

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
    case Operation::Wait:
      return "wait";
    case Operation::SumSquares:
      return "sum-squares";
    case Operation::Norm:
      return "norm";
    case Operation::Update:
      return "update";
    case Operation::Report:
      return "report";
  }
  return "unknown";
}

std::vector<ShardPiece> shard_pieces(const Bucket& bucket, int member) {
  std::vector<ShardPiece> pieces;
  const std::int64_t begin = bucket.shard.elements * member;
  const std::int64_t end = begin + bucket.shard.elements;
  for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
    const std::int64_t first = bucket.offsets[k];
    const std::int64_t last =
        k + 1 < bucket.offsets.size() ? bucket.offsets[k + 1] : bucket.elements;
    const std::int64_t from = std::max(first, begin);
    const std::int64_t to = std::min(last, end);
    if (from < to) pieces.push_back({bucket.parameters[k], from - first, from - begin, to - from});
  }
  return pieces;
}

std::string describe(const Instruction& instruction) {
  std::string text = fmt::format("{} {}", to_string(instruction.operation), instruction.node);
  if (instruction.recompute) text = "recompute: " + text;
  if (instruction.micro_batch >= 0)
    text += fmt::format(" (micro-batch {})", instruction.micro_batch);
  return text;
}

}  // namespace garonne::plan
