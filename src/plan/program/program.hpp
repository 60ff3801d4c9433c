// The Program: a flat list of instructions for one rank and one step, with a table of buffers and
// one of what the rank trains. It is the one value that generators make, replay checks, the
// executor runs, files hold and reports show; nothing else says what is to be done.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.hpp"
#include "base/device.hpp"
#include "base/grid.hpp"
#include "base/json_input.hpp"
#include "base/number_type.hpp"
#include "base/state_spec.hpp"
#include "plan/model/group_axis.hpp"

namespace garonne::plan {

enum class BufferKind {
  Parameter,
  MasterParameter,
  OptimizerState,
  Gradient,  // a bucket of parameter gradients
  Value,     // activations, and the loaded inputs
  Record,    // a private slot that a forward keeps for its backward
  ValueGradient,
  Communication,      // staging of collectives
  Scalar,             // loss sums and norms
  GatheredParameter,  // whole parameters of a bucket, from shards, for some uses
  Workspace,          // what a library keeps all the time, and constants that kernels read
};
inline constexpr int buffer_kinds = 11;

enum class Operation {
  Load,            // reads nothing; makes the input values of a micro-batch: `loaded`
  Forward,         // keeps nothing but its output
  ForwardKeep,     // also makes the record of the node
  Backward,        // input gradients and weight gradients
  BackwardWeight,  // of a node that splits them: weight gradients, from what it pins
  BackwardInput,   // and input gradients, from the parameters
  FinishForward,  // of a pass that is divided at its collective: makes the output of what came back
  FinishBackward,  // and the input gradient
  EmitLoss,        // adds the loss of a micro-batch to the sum
  Send,            // to another stage: a value or, with Arguments::gradient, the gradient of one
  Receive,         // from another stage, likewise
  AllReduce,       // sum over a group, in rank order
  ReduceScatter,   // this member's shard of a flat range becomes that sum
  AllGather,       // a flat range gets the shards of all members
  KeepShard,       // copies or adds `part` of a reduced bucket to what stays of it
  CopyOut,         // a buffer's content, from the device to the host
  CopyIn,          // and back
  DiskWrite,       // the same from the host or the device to the disk
  DiskRead,        // and back
  Wait,            // for the instruction named by `completes`
  SumSquares,      // of the gradients of `pieces` that this rank counts, beside the loss sum
  Norm,            // global norm of all gradients, from the sums
  SumTensors,      // of `pieces`: what their update goes by of all of their parameters. In rounds:
                   // a later one has the sums of those before it as further inputs
  Update,          // optimizer on `pieces`, by the norm and, where there are, those sums
  UpdateHost,      // the same on the host, on what stands there for the device's: `stand_ins`
  Report,          // hands out the sums of the step and the norm, or the value of a forward
};
inline constexpr int operation_count = 26;
constexpr bool is_forward(Operation operation) {
  return operation == Operation::Forward || operation == Operation::ForwardKeep;
}
constexpr bool is_backward(Operation operation) {
  return operation == Operation::Backward || operation == Operation::BackwardWeight ||
         operation == Operation::BackwardInput;
}
constexpr bool is_finish(Operation operation) {
  return operation == Operation::FinishForward || operation == Operation::FinishBackward;
}
constexpr bool is_message(Operation operation) {
  return operation == Operation::Send || operation == Operation::Receive;
}
constexpr bool is_collective(Operation operation) {
  return operation == Operation::AllReduce || operation == Operation::ReduceScatter ||
         operation == Operation::AllGather;
}
constexpr bool is_copy(Operation operation) {
  return operation == Operation::CopyOut || operation == Operation::CopyIn ||
         operation == Operation::DiskWrite || operation == Operation::DiskRead;
}
constexpr bool is_update(Operation operation) {
  return operation == Operation::Update || operation == Operation::UpdateHost;
}
// The copy that takes a buffer from one tier to another; none within a tier.
std::optional<Operation> copy_between(Tier from, Tier to);
// Where it runs. InternalError for what is no copy.
Lane lane_of_copy(Operation operation);

struct Buffer {
  std::string name;
  BufferKind kind = BufferKind::Value;
  std::int64_t bytes = 0;  // rounded up to the tier's granularity
  // Of what ranges are named in: without padding to the granularity; 0 of what is taken whole only.
  std::int64_t elements = 0;
  std::int64_t element_bytes = 0;
  Tier tier = Tier::Device;
  bool live_at_start = false;
  bool live_at_end = false;
  // Of a rotated step (rotated_step.hpp): what one step makes for instructions of it that are
  // carried out in the next one, which free it.
  bool carried = false;
};
// Whether it is there before the first instruction, of a rotated step after another one.
inline bool is_there_at_start(const Buffer& buffer) {
  return buffer.live_at_start || buffer.carried;
}

// Part of a buffer that is named by elements.
struct Range {
  int buffer = -1;
  std::int64_t offset = 0;  // elements
  std::int64_t elements = 0;

  bool operator==(const Range&) const = default;
};

// Where a weight gradient goes: written (accumulate = false) or added to.
struct GradientTarget {
  Range range;
  bool accumulate = false;
  int parameter = -1;  // into ModelGraph::parameters; -1 of a shard, in which there are several
};

// How the gradient of a node's input comes about, and in which storage.
enum class Placement {
  None,          // nobody wants it
  Fresh,         // in a storage of its own
  Alias,         // it is the gradient of the output, under one more name
  Overwrite,     // over the gradient of the output, which nobody else reads
  AddInPlace,    // the node adds it to what is there
  AddExisting,   // in a storage of its own, to which what is there is added
  SumWithAlias,  // the gradient of the output and what is there, summed in a storage of its own
};
inline constexpr int placement_count = 7;

// An input value of a micro-batch.
struct LoadedValue {
  int value = -1;  // into ModelGraph::values
  int buffer = -1;
};

// What a rank trains of one parameter; everything of it has as many elements, but the states as
// many as Program::state_blocks says, of a side of the whole parameter all.
struct Piece {
  int parameter = -1;
  std::int64_t first = 0;  // element of the parameter that it starts with
  Range gradient;
  Range trained;              // the master, or the parameter where it is its own
  std::vector<Range> states;  // of the optimizer, in its order
  Range compute_copy;         // of the master in the compute type; no buffer where there is none
  std::vector<Range> sums;    // of the whole parameter, by round (SumTensors)
  bool counted = true;        // enters this rank's sum of squares: once in the model
};

// Whom an instruction meets; equal on all members of the group. On the lane Compute it blocks.
struct Channel {
  std::string kind;  // "all-reduce", "reduce-scatter", "all-gather"
  GroupAxis group = GroupAxis::World;
  std::vector<int> members;
  int peer = -1;
  int tag = 0;
  std::int64_t bytes = 0;  // of the whole range, as it travels
  // BFloat16: what the numbers of a sum travel in, of which each is rounded to it once before they
  // are added in Float32. None: a sum travels in what gradients are summed in, all else as it is.
  std::optional<NumberType> wire = {};
};

// What has on the host what a buffer of the device has, or is to get; as large as it.
struct StandIn {
  int buffer = -1;
  int on_host = -1;
};

// Buffer ids by the role they play for the operation; `reads`, `writes` and `frees` of the
// instruction are what replay goes by, the roles are what the executor goes by; replay checks that
// they agree.
struct Arguments {
  std::vector<LoadedValue> loaded;
  std::vector<int> inputs;  // values, in the node's order
  int output = -1;          // value
  std::vector<int> record;  // private slots
  int keep_option = 0;      // of the node's ways to be kept, of a forward that keeps and a backward
  int output_gradient = -1;
  std::vector<int> input_gradients;   // one an input, -1 = not wanted
  std::vector<int> accumulated;       // one an input: existing gradient to add, -1 = none
  std::vector<Placement> placements;  // one an input
  int pinned_output = -1;             // the output, where the backward reads it
  // Of a pass that is divided: what its first part makes for the collective, and its Finish takes.
  int exchanged = -1;
  std::vector<Range> parameters;  // in the node's order
  std::vector<GradientTarget> parameter_gradients;
  std::vector<Range> zeroed;  // padding of what the instruction makes
  // Of a message, and of the gather of what came in parts: into ModelGraph::values, the value that
  // it or its gradient is.
  int value = -1;
  bool gradient = false;  // of these: it is a gradient
  // KeepShard: what is kept of the input. AllGather into another buffer: where the input goes. Of a
  // message in parts: what this rank sends or receives of it.
  Range part;
  std::vector<int> pieces;         // into Program::pieces
  std::vector<StandIn> stand_ins;  // UpdateHost: for what its pieces name
  // SumSquares: another rank of the tensor group counts the loss, of which this one has a copy.
  bool drops_loss = false;
  int staging = -1;
};

struct Instruction {
  Operation operation = Operation::Forward;
  std::string node;     // name of the node or of the bucket
  int node_index = -1;  // into ModelGraph::nodes; of a message: of the node that hands over here
  int bucket = -1;      // into Program::buckets
  int micro_batch = -1;
  bool recompute = false;
  std::vector<int> reads;
  std::vector<int> writes;
  std::vector<int> frees;
  std::int64_t transient_bytes = 0;
  double seconds = 0;        // of its lane
  double issue_seconds = 0;  // of the host, to put it there; 0 where the host computes
  // On any other lane than Compute it is asynchronous: it starts after what Compute has done when
  // it is issued and after the earlier instructions of other lanes in `after`, and has ended for
  // Compute behind its Wait.
  Lane lane = Lane::Compute;
  std::vector<int> after;
  std::optional<Channel> channel;
  int completes = -1;
  // It belongs to the step before, of a rotated step (rotated_step.hpp).
  bool of_previous_step = false;
  Arguments arguments;
};

// Whether it is one part, of as many as there are tensor ranks, of a message.
inline bool is_part_of_message(const Instruction& instruction) {
  return is_message(instruction.operation) && instruction.arguments.part.buffer >= 0;
}
// Whether it gathers a message that came in parts.
inline bool gathers_message(const Instruction& instruction) {
  return instruction.operation == Operation::AllGather && instruction.arguments.value >= 0;
}
// Whether it gathers parameters, which is neither of a message nor of a node.
inline bool gathers_parameters(const Instruction& instruction) {
  return instruction.operation == Operation::AllGather && instruction.arguments.value < 0 &&
         instruction.arguments.exchanged < 0;
}

// Whether it is work of the lane Compute that meets nobody.
inline bool is_local_work(const Instruction& instruction) {
  return instruction.lane == Lane::Compute && !instruction.channel;
}

// ZeRO: the static buffers of a bucket whose parameters are one flat range, padded to equal shards.
struct BucketShard {
  std::int64_t elements = 0;  // of each data rank's shard; 0 = the bucket is not in shards
  int parameter = -1;         // stages 1 and 2: the whole range; stage 3: the own shard
  int master = -1;            // own shards
  std::vector<int> states;
  int gathered = -1;  // stage 3: the whole range, for some uses; not static
  int gradient = -1;  // from stage 2: the own shard of the sum; not static
};

// Parameters whose gradients share one bucket, with where each one starts.
struct Bucket {
  int buffer = -1;  // gradients
  std::vector<int> parameters;
  std::vector<std::int64_t> offsets;  // elements
  std::int64_t elements = 0;
  BucketShard shard;
};

// A tier of memory as a Program takes it to be; it is called by to_string(Tier).
struct MemoryTier {
  // 0 of Device = none was set; of the tiers below it = nothing may be there.
  std::int64_t budget_bytes = 0;
  std::int64_t granularity = cpu_allocation_granularity;  // buffers there are multiples of it

  bool operator==(const MemoryTier&) const = default;
};

struct Program {
  std::string name;   // which generator made it
  std::string model;  // of what it is a step: model_hash(), once it is of a rank
  int rank = 0;
  Coordinates coordinates;
  std::array<MemoryTier, tier_count> tiers;  // by Tier
  std::int64_t peak_bytes = 0;               // of the device; set from replay
  double seconds = 0;                        // set from replay
  int micro_batches = 1;
  std::vector<Buffer> buffers;
  std::vector<Piece> pieces;  // ascending by parameter; none where nothing is trained
  // By state of the optimizer; none where each has a number for every element.
  std::vector<StateBlocks> state_blocks;
  // By round of SumTensors; none where all parameters have equally many numbers.
  std::vector<TensorSums> tensor_sums;
  std::vector<Instruction> instructions;
  // How gradients and shards were laid out, from which the pieces of the other ranks of the stage
  // follow (plan/step/rank_program.hpp). Nothing that runs goes by it.
  std::vector<Bucket> buckets;

  MemoryTier& tier(Tier which) { return tiers[static_cast<std::size_t>(which)]; }
  const MemoryTier& tier(Tier which) const { return tiers[static_cast<std::size_t>(which)]; }
  std::int64_t budget_bytes() const { return tier(Tier::Device).budget_bytes; }
};

// A piece as an instruction finds it: of UpdateHost by the buffers that stand in for its own.
Piece piece_of(const Program& program, const Instruction& instruction, int piece);

// Of the optimizer's state `number`.
StateBlocks blocks_of(const Program& program, std::size_t number);

std::string_view to_string(BufferKind kind);
std::string_view to_string(Placement placement);
std::string_view to_string(Operation operation);

// One line for people and error messages: "backward layer.2.qkv (micro-batch 1)".
std::string describe(const Instruction& instruction);

// What an execution measured, one entry an instruction.
struct Measurement {
  double seconds = 0;
  std::int64_t live_bytes = 0;  // after
  std::int64_t peak_bytes = 0;  // during
};

// The file format "garonne.program" (docs/formats.md). `ranks` = all ranks that run it; `measured`
// may be empty.
nlohmann::ordered_json to_json(const Program& program, const std::vector<int>& ranks,
                               const std::vector<Measurement>& measured);
// Reads what to_json wrote, but for measurements. What is not understood is refused with its key,
// as `owner` says.
Program program_from_json(const nlohmann::json& json, const std::string& path,
                          FileOwner owner = FileOwner::User);
// The measurements in the same file, one an instruction, or none where it was not run; one that is
// missing or negative is refused.
std::vector<Measurement> measurements_from_json(const nlohmann::json& json, const std::string& path,
                                                FileOwner owner = FileOwner::User);

// Hash of everything that must be equal on the ranks that run the same Program (not of rank and
// coordinates).
std::string program_hash(const Program& program);

}  // namespace garonne::plan
