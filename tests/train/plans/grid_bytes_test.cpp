// What ranks of all kinds of grids hold, to the byte: by formulas from the sizes of the model
// alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/precision.hpp"
#include "plan/program/replay.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {
namespace {

constexpr std::int64_t layers = 6;
constexpr std::int64_t hidden = 32;
constexpr std::int64_t sequence = 16;
constexpr std::int64_t vocabulary = 50;

RunConfig config_of(int data, int pipeline, int tensor, int zero, const char* precision,
                    const char* schedule) {
  RunConfig config;
  config.model.layers = layers;
  config.model.hidden = hidden;
  config.model.heads = 4;
  config.model.sequence = sequence;
  config.grid.data = data;
  config.grid.pipeline = pipeline;
  config.grid.tensor = tensor;
  config.grid.zero = zero;
  config.grid.schedule = schedule;
  config.grid.bucket = 30'000;
  config.memory.plan = "keep-all";
  config.train.precision = precision;
  config.train.global_batch = 16;
  config.train.micro_batch = 2;
  config.evaluation.batches = 0;
  return config;
}

// Elements of one layer on one of `tensor` ranks: the outputs of qkv and up are cut with their
// biases, the inputs of projection and down.
std::int64_t layer_elements(std::int64_t tensor) {
  const std::int64_t qkv = 3 * hidden / tensor * (hidden + 1);
  const std::int64_t projection = hidden * hidden / tensor + hidden;
  const std::int64_t up = 4 * hidden / tensor * (hidden + 1);
  const std::int64_t down = hidden * 4 * hidden / tensor + hidden;
  return qkv + projection + up + down + 2 * 2 * hidden;
}

std::int64_t token_elements(std::int64_t tensor) {
  return (vocabulary + tensor - 1) / tensor * hidden;
}

std::int64_t elements_of(const plan::ModelGraph& graph) {
  std::int64_t elements = 0;
  for (const auto& parameter : graph.parameters) elements += parameter.elements;
  return elements;
}

struct HeldBytes {
  std::int64_t parameters = 0;
  std::int64_t masters = 0;
  std::int64_t states = 0;
  std::int64_t gradients = 0;  // when all sums are done
  std::int64_t gathered = 0;   // the largest one
};

// From the Program: what is static, by kind, and which gradients are live before the norm.
HeldBytes held_by(const plan::Program& program) {
  HeldBytes held;
  std::vector<bool> live(program.buffers.size(), false);
  for (const auto& instruction : program.instructions) {
    if (instruction.operation == plan::Operation::SumSquares) break;
    for (const int id : instruction.writes) live[static_cast<std::size_t>(id)] = true;
    for (const int id : instruction.frees) live[static_cast<std::size_t>(id)] = false;
  }
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const plan::Buffer& buffer = program.buffers[id];
    if (buffer.live_at_end) {
      if (buffer.kind == plan::BufferKind::Parameter) held.parameters += buffer.bytes;
      if (buffer.kind == plan::BufferKind::MasterParameter) held.masters += buffer.bytes;
      if (buffer.kind == plan::BufferKind::OptimizerState) held.states += buffer.bytes;
    }
    if (buffer.kind == plan::BufferKind::GatheredParameter)
      held.gathered = std::max(held.gathered, buffer.bytes);
    if (buffer.kind == plan::BufferKind::Gradient && live[id]) held.gradients += buffer.bytes;
  }
  return held;
}

// Whole tensors, each allocated by itself, or buckets in shards padded to 256 elements.
HeldBytes formula(const Setup& stage, const plan::Program& program, const char* precision) {
  const bool mixed = std::string(precision) == "bfloat16";
  const std::int64_t wide = std::string(precision) == "float64" ? 8 : 4;
  const std::int64_t compute = mixed ? 2 : wide;
  const std::int64_t master = mixed ? 4 : 0;
  const auto ranks = static_cast<std::int64_t>(stage.config.grid.data);
  const std::int64_t zero = ranks > 1 ? stage.config.grid.zero : 0;
  HeldBytes held;
  for (const auto& bucket : program.buckets) {
    if (zero == 0) {
      for (const int p : bucket.parameters) {
        const std::int64_t n = stage.model.graph.parameters[static_cast<std::size_t>(p)].elements;
        held.parameters += round_up(n * compute, 64);
        held.masters += round_up(n * master, 64);
        held.states += 2 * round_up(n * wide, 64);
      }
      held.gradients += round_up(bucket.elements * wide, 64);
      continue;
    }
    const std::int64_t shard = round_up((bucket.elements + ranks - 1) / ranks, 256);
    held.parameters += (zero == 3 ? shard : ranks * shard) * compute;
    held.masters += shard * master;
    held.states += 2 * shard * wide;
    held.gradients += (zero == 1 ? ranks * shard : shard) * wide;
    if (zero == 3) held.gathered = std::max(held.gathered, ranks * shard * compute);
  }
  return held;
}

struct GridCase {
  int data;
  int pipeline;
  int tensor;
  const char* schedule = "1f1b";
};

TEST(GridBytes, AreThoseOfTheFormulas) {
  for (const GridCase& grid : {GridCase{1, 1, 1},
                               {2, 1, 1},
                               {4, 1, 1},
                               {1, 2, 1},
                               {1, 1, 2},
                               {2, 2, 1},
                               {2, 1, 2},
                               {2, 2, 2},
                               {1, 2, 2},
                               {2, 2, 1, "zb-v"},
                               {1, 4, 1, "chimera"},
                               {2, 2, 1, "chimera"}}) {
    for (int zero = 0; zero <= (grid.data > 1 ? 3 : 0); ++zero) {
      for (const char* precision : {"float32", "float64", "bfloat16"}) {
        SCOPED_TRACE(fmt::format("data {} pipeline {} tensor {} {} zero {} {}", grid.data,
                                 grid.pipeline, grid.tensor, grid.schedule, zero, precision));
        const train::Setup whole = make_setup(
            config_of(grid.data, grid.pipeline, grid.tensor, zero, precision, grid.schedule),
            {vocabulary, {}, {}}, 1);
        std::int64_t elements = 0;  // of all stages
        std::int64_t copies = 0;    // of the token table
        for (int stage = 0; stage < grid.pipeline; ++stage) {
          const train::Setup setup = setup_of_stage(whole, stage);
          const Choice choice = choose_program(setup, std::int64_t{1} << 40);
          const HeldBytes found = held_by(choice.program);
          const HeldBytes wanted = formula(setup, choice.program, precision);
          EXPECT_EQ(found.parameters, wanted.parameters);
          EXPECT_EQ(found.masters, wanted.masters);
          EXPECT_EQ(found.states, wanted.states);
          EXPECT_EQ(found.gradients, wanted.gradients);
          EXPECT_EQ(found.gathered, wanted.gathered);
          EXPECT_EQ(choice.prediction.static_bytes,
                    wanted.parameters + wanted.masters + wanted.states);
          std::int64_t in_buckets = 0;
          for (const auto& bucket : choice.program.buckets) in_buckets += bucket.elements;
          EXPECT_EQ(in_buckets, elements_of(setup.model.graph));
          elements += in_buckets;
          for (const auto& parameter : setup.model.graph.parameters)
            copies += parameter.name == "token_embedding.weight" ? 1 : 0;
        }
        // Stages have no parameter in common but the tied table; two directions have all twice.
        const bool twice = std::string(grid.schedule) == "chimera";
        const std::int64_t once = layers * layer_elements(grid.tensor) + sequence * hidden +
                                  2 * hidden + token_elements(grid.tensor);
        const bool two_tables = grid.pipeline > 1 && std::string(grid.schedule) == "1f1b";
        EXPECT_EQ(copies, twice || two_tables ? 2 : 1);
        EXPECT_EQ(elements,
                  (twice ? 2 * once : once + (two_tables ? token_elements(grid.tensor) : 0)));
      }
    }
  }
}

}  // namespace
}  // namespace garonne::train
