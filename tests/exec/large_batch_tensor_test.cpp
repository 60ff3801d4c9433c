// Optimizers that take norms of whole parameters, of which each tensor rank has a part.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "exec/tensor_ranks.hpp"
#include "exec/token_batch.hpp"
#include "nn/gpt/gpt.hpp"
#include "plan/program/proofs.hpp"

namespace garonne::exec {
namespace {

CutModel cut_of(const std::string& optimizer, bool sequence_parallel) {
  constexpr std::int64_t batch = 2;
  const nn::GptSizes sizes{2, 32, 4, 24, 61, 0.2};
  CutModel cut;
  cut.name = optimizer;
  cut.optimizer = optimizer;
  cut.make = [sizes, sequence_parallel](const nn::Declaration& declaration, int member, int ranks) {
    nn::GptPart part;
    part.tensor = member;
    part.tensor_ranks = ranks;
    part.sequence_parallel = sequence_parallel && ranks > 1;
    return nn::make_gpt(sizes, batch, declaration, part);
  };
  cut.load = [sizes](const nn::Model&, std::int64_t number) {
    return token_batch(number * batch, batch, sizes.sequence, sizes.vocabulary);
  };
  return cut;
}

class LargeBatchTensor : public TensorRanks {};

TEST_F(LargeBatchTensor, TrainsAsOneRank) {
  compare(cut_of("lamb", false), 0);
  compare(cut_of("lars", true), 0);
  compare(cut_of("adafactor", false), 0);
  compare(cut_of("adafactor", true), 0);
}

// What is equal on all ranks is summed by the first alone, and what is cut by all of them together.
void expect_proved_sums(const TensorRank& rank) {
  const plan::Program& program = rank.program();
  const plan::ModelGraph& graph = rank.model().graph;
  ASSERT_NO_THROW(plan::prove(program, graph));
  int sums = 0;
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const plan::Instruction& one = program.instructions[i];
    if (one.operation == plan::Operation::AllReduce && one.node.ends_with(".sums")) {
      EXPECT_EQ(one.channel->group, plan::GroupAxis::Tensor);
      ++sums;
      plan::Program other = program;
      other.instructions[i].channel->group = plan::GroupAxis::Data;
      EXPECT_THROW(plan::prove(other, graph), plan::ReplayError);
    }
    if (one.operation != plan::Operation::Update) continue;
    const auto summed =
        std::find_if(program.instructions.begin(), program.instructions.end(), [&](const auto& o) {
          return o.operation == plan::Operation::SumTensors && o.bucket == one.bucket;
        });
    ASSERT_NE(summed, program.instructions.end());
    for (const int id : one.arguments.pieces) {
      const auto& pieces = summed->arguments.pieces;
      if (std::find(pieces.begin(), pieces.end(), id) != pieces.end()) continue;
      const int p = program.pieces[static_cast<std::size_t>(id)].parameter;
      EXPECT_TRUE(graph.parameters[static_cast<std::size_t>(p)].replicated);
    }
  }
  EXPECT_GT(sums, 4);
}

TEST_F(LargeBatchTensor, SumsOfTheGroupAreProved) {
  for (const char* optimizer : {"lamb", "adafactor"}) {
    SCOPED_TRACE(optimizer);
    expect_proved_sums(TensorRank(cut_of(optimizer, false), session_, transport_.get()));
  }
}

}  // namespace
}  // namespace garonne::exec
