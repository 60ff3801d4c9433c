// What sums travel in: bytes and seconds are those that travel, memory is that of before, and ranks
// and models that mean another type are refused.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "plan/grid/grid_search.hpp"
#include "plan/model/group_links.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"
#include "plan/step/rank_program.hpp"
#include "plan/step/tensor_graphs.hpp"

namespace garonne::plan::test {
namespace {

bool sums(const Instruction& instruction) {
  return instruction.operation == Operation::AllReduce ||
         instruction.operation == Operation::ReduceScatter;
}

// A model in bfloat16 over four ranks: two data ranks of two tensor ranks, with parameters whose
// gradients are summed over both.
struct Case {
  ModelGraph graph;
  StepShape step;

  explicit Case(int zero) : graph(with_collectives(random_graph(7), 7)) {
    for (std::size_t p = 0; p < graph.parameters.size(); p += 2)
      graph.parameters[p].sums_over_tensor = true;
    step = tensor_step_shape(2, 2, 1000);
    step.element_bytes = {2, 4, 4, 4};
    step.zero = zero;
    step.links.data.link = step.links.tensor.link = {1e-6, 1e9};
  }
  Program program() const {
    return make_training_program(graph, step,
                                 same_for_all(schedule_of(graph, "full"), step.micro_batches));
  }
};

std::vector<Program> of_ranks(const Case& one, const Program& program) {
  std::vector<Program> programs;
  for (int rank = 0; rank < 4; ++rank) {
    RankPlace place;
    place.rank = rank;
    place.coordinates = {rank / 2, 0, rank % 2};
    place.data_group = {rank % 2, 2 + rank % 2};
    place.tensor_group = {rank / 2 * 2, rank / 2 * 2 + 1};
    programs.push_back(program_of_rank(program, one.graph, place));
  }
  return programs;
}

TEST(Wire, GradientsTakeTheSecondsOfWhatTravelsAndTheMemoryOfWhatIsKept) {
  for (const int zero : {0, 1, 2, 3}) {
    SCOPED_TRACE("zero " + std::to_string(zero));
    Case one(zero);
    const Program wide = one.program();
    one.step.gradient_wire = NumberType::BFloat16;
    const Program narrow = one.program();
    ASSERT_EQ(narrow.instructions.size(), wide.instructions.size());
    int of_data = 0;
    int of_tensor = 0;
    for (std::size_t i = 0; i < wide.instructions.size(); ++i) {
      const Instruction& here = narrow.instructions[i];
      const Instruction& there = wide.instructions[i];
      if (!here.channel) continue;
      const bool gradients =
          sums(here) && here.arguments.exchanged < 0 && here.channel->group != GroupAxis::World;
      EXPECT_EQ(here.channel->wire.has_value(), gradients) << describe(here);
      EXPECT_FALSE(there.channel->wire) << describe(there);
      EXPECT_EQ(here.channel->bytes, there.channel->bytes / (gradients ? 2 : 1)) << describe(here);
      if (!gradients) continue;
      EXPECT_LT(here.seconds, there.seconds);
      EXPECT_DOUBLE_EQ(here.seconds, collective_seconds(here.channel->kind, here.channel->bytes, 2,
                                                        one.step.links.data));
      (here.channel->group == GroupAxis::Data ? of_data : of_tensor) += 1;
    }
    EXPECT_GT(of_data, 0);
    EXPECT_GT(of_tensor, 0);
    for (std::size_t id = 0; id < wide.buffers.size(); ++id)
      EXPECT_EQ(narrow.buffers[id].bytes, wide.buffers[id].bytes) << wide.buffers[id].name;
    EXPECT_EQ(replay(narrow).peak_bytes, replay(wide).peak_bytes);
    EXPECT_NO_THROW(prove(narrow, one.graph));
    EXPECT_NO_THROW(prove(narrow, implied_model(narrow)));
    EXPECT_NO_THROW(replay_together(of_ranks(one, narrow)));
    const nlohmann::json file = nlohmann::json::parse(to_json(narrow, {}, {}).dump());
    EXPECT_EQ(program_hash(program_from_json(file, "a file")), program_hash(narrow));
    EXPECT_NE(program_hash(narrow), program_hash(wide));
    // What is kept and what travels are of one type: files are those of before.
    EXPECT_EQ(to_json(wide, {}, {}).dump().find("\"wire\""), std::string::npos);
  }
}

TEST(Wire, SumsOfNodesTravelAsTheNodeSays) {
  Case one(0);
  int narrow = 0;
  for (NodeSpec& node : one.graph.nodes) {
    for (NodeCollective* collective : {&node.forward_collective, &node.backward_collective}) {
      if (collective->kind.empty() || collective->kind == "all-gather" || ++narrow % 2 == 0)
        continue;
      collective->wire = NumberType::BFloat16;
    }
  }
  const Program program = one.program();
  EXPECT_NO_THROW(prove(program, one.graph));
  EXPECT_NO_THROW(prove(program, implied_model(program)));
  int found = 0;
  for (const Instruction& instruction : program.instructions) {
    if (instruction.arguments.exchanged < 0 || !is_collective(instruction.operation)) continue;
    found += instruction.channel->wire.has_value();
  }
  EXPECT_GT(found, 0);
}

void expect_refused(const std::string& reason, const std::function<void()>& proofs) {
  try {
    proofs();
    ADD_FAILURE() << "accepted; expected: " << reason;
  } catch (const ReplayError& error) {
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

Instruction& first_of(Program& program, const std::function<bool(const Instruction&)>& wanted) {
  for (Instruction& instruction : program.instructions) {
    if (wanted(instruction)) return instruction;
  }
  throw std::out_of_range("no such instruction");
}

TEST(Wire, WhoMeansAnotherTypeIsRefused) {
  Case one(0);
  one.step.gradient_wire = NumberType::BFloat16;
  const Program program = one.program();
  const auto of_nodes = [](const Instruction& instruction) {
    return sums(instruction) && instruction.arguments.exchanged >= 0;
  };
  const auto of_gradients = [](const Instruction& instruction) {
    return sums(instruction) && instruction.channel->wire;
  };
  {
    std::vector<Program> programs = of_ranks(one, program);
    first_of(programs[1], of_gradients).channel->wire.reset();
    expect_refused("meets none like it", [&] { replay_together(programs); });
  }
  {
    Program other = program;
    first_of(other, of_nodes).channel->wire = NumberType::BFloat16;
    expect_refused("grid.tensor_wire", [&] { prove(other, one.graph); });
  }
  {
    Program other = program;
    first_of(other, [](const Instruction& instruction) {
      return instruction.operation == Operation::AllGather;
    }).channel->wire = NumberType::BFloat16;
    expect_refused("which only sums do", [&] { replay(other); });
  }
  {
    Program other = program;
    first_of(other, of_gradients).channel->wire = NumberType::Float32;
    expect_refused("in bfloat16", [&] { replay(other); });
  }
  {
    Program other = program;
    first_of(other, [](const Instruction& instruction) {
      return instruction.channel && instruction.channel->group == GroupAxis::World;
    }).channel->wire = NumberType::BFloat16;
    expect_refused("not kept in float32", [&] { replay(other); });
  }
  nlohmann::json file = nlohmann::json::parse(to_json(program, {}, {}).dump());
  for (nlohmann::json& instruction : file["instructions"]) {
    if (instruction.contains("channel") && instruction["channel"].contains("wire"))
      instruction["channel"]["wire"] = "float16";
  }
  EXPECT_THROW(program_from_json(file, "a file"), ConfigError);
}

// A device is given the conversions beside the exchange and the sums.
TEST(Wire, ConversionsAreIssuedToo) {
  for (const int zero : {0, 1}) {
    Case one(zero);
    one.step.kernels = {1e-6, 1e-3};
    const Program wide = one.program();
    one.step.gradient_wire = NumberType::BFloat16;
    const Program narrow = one.program();
    for (std::size_t i = 0; i < wide.instructions.size(); ++i) {
      const Instruction& here = narrow.instructions[i];
      if (!here.channel) continue;
      const double more =
          here.channel->wire ? here.operation == Operation::AllReduce ? 4e-3 : 2e-3 : 0;
      EXPECT_NEAR(here.issue_seconds - wide.instructions[i].issue_seconds, more, 1e-9);
    }
  }
}

TEST(Wire, GridsAreSearchedByWhatTravels) {
  Cluster cluster;
  cluster.devices_per_node = 4;
  cluster.nodes = 4;
  cluster.memory_bytes = std::int64_t{1} << 40;
  cluster.inside_node = {1e-6, 10e9};
  cluster.between_nodes = {5e-6, 1e9};
  const auto blocks = [](int, bool, std::int64_t) {
    std::vector<BlockCost> made(4);
    for (BlockCost& block : made) {
      block.forward_seconds = block.backward_seconds = block.weight_seconds = 1e-3;
      block.cut_seconds = 3e-3;
      const auto number = static_cast<int>(&block - made.data());
      block.parameters = {{.parameter = number, .node = number, .elements = std::int64_t{1} << 24}};
      block.options = {{-1, 1 << 20, 0}};
    }
    return made;
  };
  StepShape step = step_shape(1, 1, 4 << 20);
  step.element_bytes = {2, 4, 4, 4};
  GridEstimator wide(cluster, std::int64_t{1} << 40, step, blocks);
  step.gradient_wire = NumberType::BFloat16;
  GridEstimator narrow(cluster, std::int64_t{1} << 40, step, blocks);
  for (const int zero : {0, 1, 2, 3}) {
    GridCandidate candidate;
    candidate.shape.data = 16;
    candidate.zero = zero;
    candidate.micro_batch = 1;
    candidate.micro_batches = 1;
    candidate.bucket_bytes = 4 << 20;
    EXPECT_LT(narrow.estimate(candidate).seconds, wide.estimate(candidate).seconds) << zero;
    EXPECT_LE(narrow.bounds(candidate).seconds, wide.bounds(candidate).seconds) << zero;
    EXPECT_EQ(narrow.estimate(candidate).bytes, wide.estimate(candidate).bytes) << zero;
  }
}

}  // namespace
}  // namespace garonne::plan::test
