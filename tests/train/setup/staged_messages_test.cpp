#include "train/setup/staged_messages.hpp"

#include <gtest/gtest.h>

namespace garonne::train {
namespace {

constexpr std::int64_t data_bytes = 3 << 20;
constexpr std::int64_t sum_bytes = 1 << 20;

// Sums of gradients with staging of their own; message() and wait() in the order of their calls.
class Messages {
 public:
  Messages& sum(Lane lane) {
    const int data = add(data_bytes);
    const int staging = add(sum_bytes);
    plan::Instruction one;
    one.operation = plan::Operation::AllReduce;
    one.lane = lane;
    one.channel.emplace();
    one.channel->bytes = data_bytes;
    one.arguments.staging = staging;
    one.reads = {data};
    one.writes = {data, staging};
    program.instructions.push_back(one);
    return *this;
  }

  Messages& wait(int completes) {
    plan::Instruction one;
    one.operation = plan::Operation::Wait;
    one.completes = completes;
    program.instructions.push_back(one);
    return *this;
  }

  plan::Program program;

 private:
  int add(std::int64_t bytes) {
    plan::Buffer buffer;
    buffer.bytes = bytes;
    program.buffers.push_back(buffer);
    return static_cast<int>(program.buffers.size()) - 1;
  }
};

TEST(StagedMessages, ProgramsThatMeetNobodyStageNothing) {
  EXPECT_EQ(staged_bytes({}), 0);
}

TEST(StagedMessages, WhatIsWaitedForMakesRoom) {
  const auto one = Messages().sum(Lane::Collective).wait(0);
  const auto in_turn = Messages().sum(Lane::Collective).wait(0).sum(Lane::Collective).wait(2);
  const auto blocking = Messages().sum(Lane::Compute).sum(Lane::Compute);
  EXPECT_GE(staged_bytes(one.program), data_bytes + sum_bytes);
  EXPECT_EQ(staged_bytes(in_turn.program), staged_bytes(one.program));
  EXPECT_EQ(staged_bytes(blocking.program), staged_bytes(one.program));
}

TEST(StagedMessages, WhatIsUnderWayTogetherIsThereTogether) {
  const auto together =
      Messages().sum(Lane::Collective).sum(Lane::Collective).sum(Lane::Compute).wait(0).wait(1);
  EXPECT_GE(staged_bytes(together.program), 3 * (data_bytes + sum_bytes));
}

}  // namespace
}  // namespace garonne::train
