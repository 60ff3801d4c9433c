// The messages of Programs of two axes, staged in a tier of the bytes that are counted for them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/collective_bytes.hpp"
#include "dist/device_bench.hpp"
#include "dist/session.hpp"
#include "plan/step/generator.hpp"
#include "plan/step/rank_program.hpp"
#include "plan/step/tensor_graphs.hpp"
#include "train/setup/staged_messages.hpp"

namespace garonne::train {
namespace {

using plan::GroupAxis;

// As one of the ranks of data 2 × tensor 2 runs it.
plan::Program program_of(unsigned seed, int rank) {
  const plan::ModelGraph graph = plan::test::with_collectives(plan::test::random_graph(seed), seed);
  plan::StepShape step = plan::test::tensor_step_shape(2, 2, 20000);
  step.zero = static_cast<int>(seed % 4);
  step.reduction_bytes = {1 << 20};
  const plan::Program program = plan::make_training_program(
      graph, step, plan::same_for_all(plan::test::schedule_of(graph, "keep-all"), 2));
  plan::RankPlace place;
  place.rank = rank;
  place.coordinates = {rank / 2, 0, rank % 2};
  place.data_group = {rank % 2, 2 + rank % 2};
  place.tensor_group = {rank / 2 * 2, rank / 2 * 2 + 1};
  return plan::program_of_rank(program, graph, place);
}

class StagedGrid : public testing::TestWithParam<dist::BenchKind> {
 protected:
  // Puts what the Program's collectives put; gives back how many there were.
  int run(const plan::Program& program, dist::DeviceBench& bench,
          const std::map<GroupAxis, dist::Transport*>& axes) {
    std::map<std::size_t, dist::Ticket> tickets;
    int collectives = 0;
    for (std::size_t number = 0; number < program.instructions.size(); ++number) {
      const plan::Instruction& instruction = program.instructions[number];
      if (instruction.operation == plan::Operation::Wait) {
        const auto completes = static_cast<std::size_t>(instruction.completes);
        transport_of(program.instructions[completes], axes).wait(tickets.at(completes));
      }
      if (!instruction.channel) continue;
      ++collectives;
      dist::Transport& transport = transport_of(instruction, axes);
      const std::int64_t elements = instruction.channel->bytes / 4;
      std::byte* const data = bench.allocate(4 * elements);
      const std::int64_t room = all_reduce_staging_bytes(elements, 4, transport.size());
      std::byte* const staging = room > 0 ? bench.allocate(room) : nullptr;
      if (instruction.channel->kind == "all-reduce") {
        tickets[number] =
            transport.all_reduce_sum(data, elements, dist::ScalarType::Float32, staging);
      } else if (instruction.channel->kind == "reduce-scatter") {
        tickets[number] =
            transport.reduce_scatter_sum(data, elements, dist::ScalarType::Float32, staging);
      } else {
        tickets[number] = transport.all_gather(data, elements, 4);
      }
      if (instruction.lane == Lane::Compute) transport.wait(tickets[number]);
    }
    return collectives;
  }

  static dist::Transport& transport_of(const plan::Instruction& instruction,
                                       const std::map<GroupAxis, dist::Transport*>& axes) {
    return *axes.at(instruction.channel.value().group);
  }
};

TEST_P(StagedGrid, TransportsOfOneTierHaveRoomForTheProgram) {
  dist::Session session = dist::Session::start();
  ASSERT_EQ(session.size(), 4);
  const int rank = session.rank();
  for (unsigned seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE(seed);
    const plan::Program program = program_of(seed, rank);
    const std::int64_t bytes = staged_bytes(program);
    const auto bench = dist::make_bench(GetParam(), session, true, bytes);
    {
      dist::CommunicationThread thread(session);
      const auto data = bench->make(session, thread, {rank % 2, 2 + rank % 2});
      const auto tensor = bench->make(session, thread, {rank / 2 * 2, rank / 2 * 2 + 1});
      const auto world = bench->make(session, thread, {0, 1, 2, 3});
      const std::map<GroupAxis, dist::Transport*> axes = {{GroupAxis::Data, data.get()},
                                                          {GroupAxis::Tensor, tensor.get()},
                                                          {GroupAxis::World, world.get()}};
      EXPECT_GT(run(program, *bench, axes), 4);
    }
    for (const std::string& problem : bench->problems()) ADD_FAILURE() << problem;
  }
}

INSTANTIATE_TEST_SUITE_P(Benches, StagedGrid,
                         testing::Values(dist::BenchKind::EmulatedMpi, dist::BenchKind::CudaMpi),
                         [](const auto& each) { return to_string(each.param); });

}  // namespace
}  // namespace garonne::train
