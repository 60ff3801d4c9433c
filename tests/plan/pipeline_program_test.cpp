// Programs of pipelines: every schedule's set is accepted by replay, broken sets are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/error.hpp"
#include "plan/generator.hpp"
#include "plan/graphs.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/policy.hpp"
#include "plan/replay.hpp"
#include "plan/stage_cut.hpp"

namespace garonne::plan {
namespace {

// A chain of which every second node splits its backward.
ModelGraph chain_graph(int blocks) {
  ModelGraph graph = test::chain(blocks, 2);
  for (std::size_t n = 0; n + 1 < graph.nodes.size(); n += 2) {
    NodeSpec& node = graph.nodes[n];
    node.private_slot_bytes.clear();
    node.splits_backward = true;
    node.backward_weight.seconds = 1;
    node.backward.seconds = 1;
  }
  return graph;
}

// The Programs of all stages, or none where the schedule cannot be made for so many micro-batches.
std::vector<Program> programs_of(const std::string& name, int stages, int micro_batches,
                                 const ModelGraph& whole, const std::string& policy) {
  PipelineSchedule schedule;
  try {
    PipelineRequest request;
    request.stages = stages;
    request.micro_batches = micro_batches;
    schedule = make_pipeline_schedule(name, request);
  } catch (const ConfigError&) {
    return {};
  }
  const auto route = pipeline_routes(schedule.placement, stages, schedule.chunks).front();
  const auto parts = balanced_parts(whole, static_cast<int>(route.size()));
  std::vector<Program> programs;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<int> mine;
    for (int part = 0; part < static_cast<int>(route.size()); ++part) {
      if (route[static_cast<std::size_t>(part)].device == stage) mine.push_back(part);
    }
    const StageCut cut = cut_stage(whole, parts, mine);
    StepShape step;
    step.micro_batches = micro_batches;
    step.optimizer_states = {"first_moment"};
    for (int rank = 0; rank < stages; ++rank) {
      step.world_group.push_back(rank);
      step.pipeline.group.push_back(rank);
    }
    step.data_group = {stage};
    step.pipeline.member = stage;
    step.pipeline.order = schedule.order[static_cast<std::size_t>(stage)];
    const auto device = [&](int part) {
      if (part < 0 || part >= static_cast<int>(route.size())) return -1;
      const int found = route[static_cast<std::size_t>(part)].device;
      return found == stage ? -1 : found;
    };
    for (const int part : mine)
      step.pipeline.chunks.push_back({part, device(part - 1), device(part + 1)});
    programs.push_back(make_training_program(
        cut.graph, step, same_for_all(test::schedule_of(cut.graph, policy), micro_batches)));
    programs.back().rank = stage;
  }
  return programs;
}

const std::vector<std::string> schedules = {"gpipe", "1f1b",  "interleaved", "varuna",
                                            "zb-h1", "zb-h2", "zb-v",        "dualpipev"};

TEST(PipelinePrograms, AreAcceptedForEverySchedule) {
  const ModelGraph whole = chain_graph(34);
  int accepted = 0;
  for (const auto& name : schedules) {
    int of_schedule = 0;
    for (const int stages : {2, 3, 4, 8}) {
      for (const int micro_batches : {1, 2, 3, 4, 7, 8, 16, 32}) {
        const auto programs = programs_of(name, stages, micro_batches, whole, "keep-all");
        if (programs.empty()) continue;
        SCOPED_TRACE(name + " " + std::to_string(stages) + " " + std::to_string(micro_batches));
        ASSERT_NO_THROW(replay_together(programs));
        ++of_schedule;
      }
    }
    EXPECT_GT(of_schedule, 5) << name;
    accepted += of_schedule;
  }
  EXPECT_GT(accepted, 150);
}

TEST(PipelinePrograms, RecomputationIsCutByChunkToo) {
  const ModelGraph whole = chain_graph(20);
  for (const auto& name : schedules) {
    for (const char* policy : {"full", "selective", "uniform"}) {
      const auto programs = programs_of(name, 2, 4, whole, policy);
      if (programs.empty()) continue;
      SCOPED_TRACE(name + " " + policy);
      ASSERT_NO_THROW(replay_together(programs));
    }
  }
}

// A stage holds the activations of as many micro-batches as the schedule says: with one forward,
// one backward the first stage holds more than the last.
TEST(PipelinePrograms, EarlyStagesHoldMoreMicroBatches) {
  const ModelGraph whole = chain_graph(34);
  const auto programs = programs_of("1f1b", 4, 8, whole, "keep-all");
  ASSERT_EQ(programs.size(), 4U);
  const auto predictions = replay_together(programs);
  EXPECT_GT(predictions[0].peak_bytes, predictions[2].peak_bytes);
  const auto flooded = replay_together(programs_of("gpipe", 4, 8, whole, "keep-all"));
  EXPECT_GT(flooded[0].peak_bytes, predictions[0].peak_bytes);
}

void expect_refused(std::vector<Program> programs, int rank,
                    const std::function<bool(const Instruction&)>& wanted,
                    const std::function<void(Program&, std::size_t)>& breaking,
                    const std::string& message) {
  auto& instructions = programs[static_cast<std::size_t>(rank)].instructions;
  const auto found = std::find_if(instructions.begin(), instructions.end(), wanted);
  ASSERT_NE(found, instructions.end());
  breaking(programs[static_cast<std::size_t>(rank)],
           static_cast<std::size_t>(found - instructions.begin()));
  try {
    replay_together(programs);
    FAIL() << "accepted; wanted: " << message;
  } catch (const ReplayError& error) {
    EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("instruction"), std::string::npos);
  }
}

TEST(PipelinePrograms, BrokenSetsAreRefusedWithTheInstruction) {
  const ModelGraph whole = chain_graph(12);
  const auto programs = programs_of("1f1b", 2, 4, whole, "keep-all");
  ASSERT_EQ(programs.size(), 2U);
  const auto sends = [](const Instruction& one) { return one.operation == Operation::Send; };
  const auto receives = [](const Instruction& one) { return one.operation == Operation::Receive; };
  expect_refused(
      programs, 0, sends, [](Program& p, std::size_t i) { p.instructions[i].channel->tag += 1000; },
      "no such message is sent");
  expect_refused(
      programs, 1, receives,
      [](Program& p, std::size_t i) { p.instructions[i].channel->bytes /= 2; }, "expects");
  expect_refused(
      programs, 1, receives, [](Program& p, std::size_t i) { p.instructions[i].channel->peer = 7; },
      "outside its group");
  // What arrives is used before it is waited for.
  expect_refused(
      programs, 1, [](const Instruction& one) { return one.operation == Operation::Wait; },
      [](Program& p, std::size_t i) { std::swap(p.instructions[i], p.instructions[i + 1]); },
      "while an asynchronous instruction");
}

// Both stages wait for the other's message before they send their own.
TEST(PipelinePrograms, ACircleOfWaitsIsRefused) {
  std::vector<Program> programs;
  for (int rank = 0; rank < 2; ++rank) {
    Program program;
    program.rank = rank;
    for (const char* name : {"in", "out"}) {
      Buffer buffer;
      buffer.name = name;
      buffer.bytes = 64;
      buffer.live_at_end = true;
      program.buffers.push_back(buffer);
    }
    program.buffers[1].live_at_start = true;
    Channel channel;
    channel.group = "pipeline";
    channel.members = {0, 1};
    channel.peer = 1 - rank;
    channel.bytes = 64;
    Instruction receive;
    receive.operation = Operation::Receive;
    receive.writes = {0};
    receive.channel = channel;
    Instruction wait;
    wait.operation = Operation::Wait;
    wait.completes = 0;
    Instruction send;
    send.operation = Operation::Send;
    send.reads = {1};
    send.channel = channel;
    Instruction sent = wait;
    sent.completes = 2;
    program.instructions = {receive, wait, send, sent};
    programs.push_back(program);
  }
  try {
    replay_together(programs);
    FAIL() << "accepted";
  } catch (const ReplayError& error) {
    EXPECT_NE(std::string(error.what()).find("circle"), std::string::npos) << error.what();
  }
}

TEST(StageCut, PartsAreBalanced) {
  const ModelGraph whole = chain_graph(10);
  const auto parts = balanced_parts(whole, 3);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts.front().first, 0);
  EXPECT_EQ(parts.back().last, static_cast<int>(whole.nodes.size()));
  for (std::size_t k = 1; k < parts.size(); ++k) EXPECT_EQ(parts[k].first, parts[k - 1].last);
  EXPECT_THROW(balanced_parts(whole, 1000), ConfigError);
}

}  // namespace
}  // namespace garonne::plan
