#include "plan/step/rank_program.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/contains.hpp"
#include "base/index.hpp"
#include "plan/model/model_hash.hpp"

namespace garonne::plan {
namespace {

// What is summed for each bucket (SumTensors), by round.
std::vector<std::vector<int>> sums_of_buckets(const Program& program) {
  std::vector<std::vector<int>> sums(program.buckets.size());
  for (const Instruction& instruction : program.instructions) {
    if (instruction.operation == Operation::SumTensors)
      sums[as_index(instruction.bucket)].push_back(instruction.arguments.output);
  }
  return sums;
}

Piece piece_of_shard(const Program& program, const ModelGraph& graph, const Bucket& bucket,
                     const ShardPiece& part, int member, const std::vector<int>& sums) {
  const BucketShard& shard = bucket.shard;
  const auto in_shard = [&](int buffer) { return Range{buffer, part.offset, part.elements}; };
  // Of what may be held whole or as the own shard.
  const auto in_either = [&](int buffer) {
    const bool whole = program.buffers[as_index(buffer)].elements > shard.elements;
    return Range{buffer, part.offset + (whole ? shard.elements * member : 0), part.elements};
  };
  Piece piece;
  piece.parameter = part.parameter;
  piece.first = part.first;
  piece.gradient = shard.gradient >= 0 ? in_shard(shard.gradient) : in_either(bucket.buffer);
  piece.trained = shard.master >= 0 ? in_shard(shard.master) : in_either(shard.parameter);
  if (shard.master >= 0) piece.compute_copy = in_either(shard.parameter);
  for (std::size_t k = 0; k < shard.states.size(); ++k) {
    const StateBlocks blocks = blocks_of(program, k);
    const auto of_sides = [&](const MatrixSides& sides) { return blocks.count(0, sides); };
    piece.states.push_back(
        blocks.of_whole()
            ? Range{shard.states[k], numbers_before(bucket, graph, part.parameter, of_sides),
                    of_sides(graph.parameters[as_index(part.parameter)].sides())}
            : Range{shard.states[k], blocks.count(part.offset), blocks.count(part.elements)});
  }
  piece.sums = sums_of_parameter(program, bucket, graph, part.parameter, sums);
  return piece;
}

// The pieces of the rank, and which of them each bucket has.
std::vector<std::vector<int>> place_pieces(Program& program, const ModelGraph& graph, int member) {
  struct Placed {
    Piece piece;
    std::size_t bucket = 0;
  };
  std::vector<Placed> placed;
  const std::vector<std::vector<int>> sums = sums_of_buckets(program);
  for (std::size_t number = 0; number < program.buckets.size(); ++number) {
    const Bucket& bucket = program.buckets[number];
    for (const ShardPiece& part : shard_pieces(bucket, member))
      placed.push_back(
          {piece_of_shard(program, graph, bucket, part, member, sums[number]), number});
  }
  std::sort(placed.begin(), placed.end(),
            [](const Placed& a, const Placed& b) { return a.piece.parameter < b.piece.parameter; });
  std::vector<std::vector<int>> pieces_of(program.buckets.size());
  program.pieces.clear();
  for (Placed& one : placed) {
    pieces_of[one.bucket].push_back(static_cast<int>(program.pieces.size()));
    program.pieces.push_back(std::move(one.piece));
  }
  return pieces_of;
}

// What is equal on all tensor ranks the first of them adds to what they sum.
void place_sums(Program& program, const ModelGraph& graph, bool first_of_tensor) {
  std::map<int, std::vector<int>> updated;  // pieces, by bucket
  std::set<int> over_tensor;                // buffers
  for (const Instruction& instruction : program.instructions) {
    if (is_update(instruction.operation))
      updated[instruction.bucket] = instruction.arguments.pieces;
    const auto& channel = instruction.channel;
    if (instruction.operation == Operation::AllReduce && channel &&
        channel->group == GroupAxis::Tensor && instruction.arguments.exchanged < 0)
      over_tensor.insert(instruction.arguments.inputs.begin(), instruction.arguments.inputs.end());
  }
  for (Instruction& instruction : program.instructions) {
    if (instruction.operation != Operation::SumTensors) continue;
    std::vector<int>& pieces = instruction.arguments.pieces;
    pieces = updated[instruction.bucket];
    if (first_of_tensor || !over_tensor.contains(instruction.arguments.output)) continue;
    std::erase_if(pieces, [&](int id) {
      return graph.parameters[as_index(program.pieces[as_index(id)].parameter)].replicated;
    });
  }
}

void put_members(Channel& channel, const RankPlace& place) {
  if (channel.group == GroupAxis::Data) channel.members = place.data_group;
  if (channel.group == GroupAxis::Tensor) channel.members = place.tensor_group;
  if (channel.group == GroupAxis::Pipeline) channel.members = place.pipeline_group;
  if (channel.group == GroupAxis::Tied) channel.members = place.tied_group;
}

}  // namespace

bool in_shards(const Program& program) {
  return std::any_of(program.buckets.begin(), program.buckets.end(),
                     [](const Bucket& bucket) { return bucket.shard.elements > 0; });
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

std::int64_t numbers_before(const Bucket& bucket, const ModelGraph& graph, int parameter,
                            const std::function<std::int64_t(const MatrixSides&)>& numbers) {
  std::int64_t all = 0;
  for (const int p : bucket.parameters) {
    if (p == parameter) break;
    all += numbers(graph.parameters[as_index(p)].sides());
  }
  return all;
}

std::vector<Range> sums_of_parameter(const Program& program, const Bucket& bucket,
                                     const ModelGraph& graph, int parameter,
                                     const std::vector<int>& sums) {
  std::vector<Range> ranges;
  for (std::size_t round = 0; round < sums.size(); ++round) {
    const std::int64_t all = program.buffers[as_index(sums[round])].elements;
    const TensorSums each =
        program.tensor_sums.empty()
            ? TensorSums{all / static_cast<std::int64_t>(bucket.parameters.size()), false}
            : program.tensor_sums.at(round);
    const auto count = [&](const MatrixSides& sides) { return each.count(sides); };
    ranges.push_back({sums[round], numbers_before(bucket, graph, parameter, count),
                      count(graph.parameters[as_index(parameter)].sides())});
  }
  return ranges;
}

void place_shards(Program& program, const ModelGraph& graph, const Coordinates& place) {
  const bool first_of_tensor = place.tensor == 0;
  const bool sharded = in_shards(program);
  const bool trains =
      std::any_of(program.instructions.begin(), program.instructions.end(),
                  [](const Instruction& instruction) { return is_update(instruction.operation); });
  std::vector<std::vector<int>> pieces_of;
  if (sharded && trains) pieces_of = place_pieces(program, graph, place.data);
  for (Piece& piece : program.pieces) {
    const ParameterSpec& parameter = graph.parameters[as_index(piece.parameter)];
    // Shards are counted by who has them, whole gradients by the first of those that have the same.
    piece.counted = parameter.counted && (first_of_tensor || !parameter.replicated) &&
                    (sharded || place.data == 0);
  }
  for (Instruction& instruction : program.instructions) {
    Arguments& arguments = instruction.arguments;
    const int member = is_part_of_message(instruction) ? place.tensor : place.data;
    if (arguments.part.buffer >= 0) arguments.part.offset = arguments.part.elements * member;
    if (instruction.operation == Operation::SumSquares) {
      arguments.drops_loss = !first_of_tensor;
      arguments.pieces.clear();
      for (std::size_t id = 0; id < program.pieces.size(); ++id) {
        if (contains(instruction.reads, program.pieces[id].gradient.buffer))
          arguments.pieces.push_back(static_cast<int>(id));
      }
    }
    if (is_update(instruction.operation) && sharded)
      arguments.pieces = pieces_of[as_index(instruction.bucket)];
  }
  if (trains) place_sums(program, graph, first_of_tensor);
}

Program program_of_rank(Program program, const ModelGraph& graph, const RankPlace& place) {
  program.rank = place.rank;
  program.coordinates = place.coordinates;
  program.model = model_hash(graph);
  for (Instruction& instruction : program.instructions) {
    if (instruction.channel) put_members(*instruction.channel, place);
  }
  place_shards(program, graph, place.coordinates);
  return program;
}

Program without_rank(Program program) {
  program.rank = 0;
  program.coordinates = {};
  program.pieces.clear();
  for (Instruction& instruction : program.instructions) {
    if (instruction.channel) instruction.channel->members.clear();
    instruction.arguments.part.offset = 0;
    instruction.arguments.pieces.clear();
    instruction.arguments.drops_loss = false;
  }
  return program;
}

}  // namespace garonne::plan
