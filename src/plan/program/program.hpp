// The Program: a flat list of instructions for one rank and one step, with a table of buffers. It
// is the one value that generators make, replay checks, the executor runs and reports show.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/grid.hpp"
#include "base/json_input.hpp"

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
};
inline constexpr int buffer_kinds = 10;

enum class Operation {
  Load,            // reads nothing; makes the input values of a micro-batch
  Forward,         // keeps nothing but its output
  ForwardKeep,     // also makes the record of the node
  Backward,        // input gradients and weight gradients
  BackwardWeight,  // of a node that splits them: weight gradients, from what it pins
  BackwardInput,   // and input gradients, from the parameters
  EmitLoss,        // adds the loss of a micro-batch to the sum
  Send,            // asynchronous, to another stage: a value, or with node_index < 0 its gradient
  Receive,         // asynchronous, from another stage: a gradient, or with node_index < 0 a value
  AllReduce,       // asynchronous sum over a group, in rank order
  ReduceScatter,   // asynchronous; this member's shard of a flat range becomes that sum
  AllGather,       // asynchronous; a flat range gets the shards of all members
  KeepShard,       // copies or adds the own shard of a reduced bucket to what stays of it
  Wait,            // for the instruction named by `completes`
  SumSquares,      // of the gradients that this rank counts, beside the loss sum
  Norm,            // global norm of all gradients
  Update,          // optimizer on the parameters of one bucket
  Report,          // hands the sums of the step to the loop
};
inline constexpr int operation_count = 18;
constexpr bool is_forward(Operation operation) {
  return operation == Operation::Forward || operation == Operation::ForwardKeep;
}
constexpr bool is_backward(Operation operation) {
  return operation == Operation::Backward || operation == Operation::BackwardWeight ||
         operation == Operation::BackwardInput;
}

enum class Tier { Device, Host };

struct Buffer {
  std::string name;
  BufferKind kind = BufferKind::Value;
  std::int64_t bytes = 0;  // rounded up to the tier's granularity
  Tier tier = Tier::Device;
  bool live_at_start = false;
  bool live_at_end = false;
};

// Where a weight gradient goes: a range of a bucket, written (accumulate = false) or added to.
struct GradientTarget {
  int buffer = -1;
  std::int64_t offset_elements = 0;
  bool accumulate = false;
};

// How a channel of a collective is named; equal on all members of the group.
struct Channel {
  std::string kind;   // "all-reduce", "reduce-scatter", "all-gather"
  std::string group;  // "data"
  std::vector<int> members;
  int peer = -1;
  int tag = 0;
  std::int64_t bytes = 0;
  bool blocking = false;
};

// Buffer ids by the role they play for the operation; `reads`, `writes` and `frees` of the
// instruction are what replay goes by, the roles are what the executor goes by; replay checks that
// they agree.
struct Arguments {
  std::vector<int> inputs;  // values, in the node's order
  int output = -1;          // value
  std::vector<int> record;  // private slots
  int output_gradient = -1;
  std::vector<int> input_gradients;  // one an input, -1 = not wanted
  std::vector<int> accumulated;      // one an input: existing gradient to add, -1 = none
  int pinned_output = -1;            // the output, where the backward reads it
  std::vector<int> parameters;       // buffers, in the node's order
  std::vector<GradientTarget> parameter_gradients;
  int staging = -1;
};

struct Instruction {
  Operation operation = Operation::Forward;
  std::string node;     // name of the node or of the bucket
  int node_index = -1;  // into ModelGraph::nodes
  int micro_batch = -1;
  bool recompute = false;
  std::vector<int> reads;
  std::vector<int> writes;
  std::vector<int> frees;
  std::int64_t transient_bytes = 0;
  double seconds = 0;
  std::optional<Channel> channel;
  int completes = -1;
  Arguments arguments;
};

// ZeRO: the static buffers of a bucket whose parameters are one flat range, padded to equal shards.
struct BucketShard {
  std::int64_t elements = 0;  // of each data rank's shard; 0 = the bucket is not in shards
  int parameter = -1;         // stages 1 and 2: the whole range; stage 3: the own shard
  int master = -1;            // own shards
  std::vector<int> states;
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

// The part of a parameter that lies in one shard.
struct ShardPiece {
  int parameter = -1;
  std::int64_t first = 0;   // element of the parameter
  std::int64_t offset = 0;  // element of the shard
  std::int64_t elements = 0;
};

// What the shard of data rank `member` holds, in ascending order; the rest of it is padding.
std::vector<ShardPiece> shard_pieces(const Bucket& bucket, int member);

// The static buffers of one parameter. Where buckets are in shards, `parameter` is the flat range
// of its bucket and the rest is in BucketShard.
struct ParameterBuffers {
  int parameter = -1;  // read by the nodes, in the compute type
  int master = -1;     // float32 copy that the optimizer updates; -1 where the parameter is its own
  std::vector<int> states;  // of the optimizer, in its order
  // Whose gradient enters the global norm: once for each element of the model.
  bool counted = true;      // false for a copy of a parameter that another stage counts
  bool replicated = false;  // equal on all tensor ranks, so the first of them counts it
};

struct Program {
  std::string name;  // which generator made it
  int rank = 0;
  Coordinates coordinates;
  std::int64_t budget_bytes = 0;
  std::int64_t host_budget_bytes = 0;
  std::int64_t peak_bytes = 0;  // set from replay
  double seconds = 0;           // set from replay
  int micro_batches = 1;
  int zero = 0;              // stage; 0 also where there is one data rank
  int shards_of_bucket = 1;  // data ranks, under ZeRO
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  std::vector<ParameterBuffers> parameters;  // by parameter index
  std::vector<Bucket> buckets;
  int loss_sum = -1;  // scalar buffers; [loss, sum of squared gradients]
  int gradient_norm = -1;
};

std::string_view to_string(BufferKind kind);
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
// Reads what to_json wrote, enough to replay it. What is not understood is refused with its key, as
// `owner` says.
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
