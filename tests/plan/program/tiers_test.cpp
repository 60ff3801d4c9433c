// Tiers of memory: their bytes and budgets, on a Program by hand that moves a value
// out to the host, on to the disk and back, and on whole steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "plan/program/live_bytes.hpp"
#include "plan/program/order_check.hpp"
#include "plan/program/replay.hpp"
#include "plan/program/wait_for.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

enum : int { parameter, value, kept, filed, state };

Instruction on(Lane lane, const std::string& node, std::vector<int> reads,
               std::vector<int> writes) {
  Instruction instruction;
  instruction.operation = Operation::Load;
  instruction.node = node;
  instruction.lane = lane;
  instruction.reads = std::move(reads);
  instruction.writes = std::move(writes);
  instruction.seconds = 1;
  return instruction;
}

Program offloading() {
  Program program;
  program.buffers = {{"parameter", BufferKind::Parameter, 256, 64, 4, Tier::Device, true, true},
                     {"value", BufferKind::Value, 128},
                     {"value.host", BufferKind::Value, 192, 0, 0, Tier::Host},
                     {"value.disk", BufferKind::Value, 4096, 0, 0, Tier::Disk},
                     {"state", BufferKind::OptimizerState, 512, 0, 0, Tier::Host, true, true}};
  program.instructions = {on(Lane::Compute, "make", {parameter}, {value}),
                          on(Lane::CopyOut, "out", {value}, {kept}),
                          wait_for(1, {value}),
                          on(Lane::DiskWrite, "write", {kept}, {filed}),
                          wait_for(3, {kept}),
                          on(Lane::DiskRead, "read", {filed}, {kept}),
                          wait_for(5, {filed}),
                          on(Lane::CopyIn, "in", {kept}, {value}),
                          wait_for(7, {kept}),
                          on(Lane::HostCompute, "update", {state}, {state}),
                          wait_for(9),
                          on(Lane::Compute, "use", {value, parameter}, {})};
  program.instructions.back().frees = {value};
  program.instructions[3].transient_bytes = 1000;
  return program;
}

TEST(Tiers, EachHasItsBytes) {
  const Program program = offloading();
  const Prediction prediction = replay(program);
  check_order(program);
  EXPECT_EQ(prediction.peak_bytes, 256 + 1000);  // what an instruction takes is on the device
  EXPECT_EQ(prediction.static_bytes, 256);
  EXPECT_EQ(prediction.host.peak_bytes, 512 + 192);
  EXPECT_EQ(prediction.host.peak_instruction, 1);
  EXPECT_EQ(prediction.host.static_bytes, 512);
  EXPECT_EQ(prediction.host.peak_by_kind[static_cast<std::size_t>(BufferKind::Value)], 192);
  EXPECT_EQ(
      prediction.host.during_bytes,
      (std::vector<std::int64_t>{512, 704, 704, 704, 704, 704, 704, 704, 704, 512, 512, 512}));
  EXPECT_EQ(prediction.disk.peak_bytes, 4096);
  EXPECT_EQ(prediction.disk.peak_instruction, 3);
  EXPECT_EQ(prediction.disk.live_bytes,
            (std::vector<std::int64_t>{0, 0, 0, 4096, 4096, 4096, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(live_during(program, -1), (std::vector<int>{parameter, state}));
  EXPECT_EQ(live_during(program, 4), (std::vector<int>{parameter, kept, filed, state}));
  EXPECT_EQ(live_during(program, 7), (std::vector<int>{parameter, value, kept, state}));
}

std::string over_budget(const Program& program) {
  try {
    check_budgets(program, replay(program));
  } catch (const ReplayError& error) {
    return error.what();
  }
  return "";
}

TEST(Tiers, EachHasItsBudget) {
  Program program = offloading();
  program.tier(Tier::Host).budget_bytes = 704;
  program.tier(Tier::Disk).budget_bytes = 4096;
  EXPECT_EQ(over_budget(program), "");
  const auto says = [&](Tier tier, std::int64_t budget, const std::string& part) {
    Program tight = program;
    tight.tier(tier).budget_bytes = budget;
    EXPECT_NE(over_budget(tight).find(part), std::string::npos)
        << to_string(tier) << " " << budget << ": " << over_budget(tight);
  };
  says(Tier::Device, 1256 - 1,
       "instruction 3, load write: holds 1256 B on the tier device whose budget is 1255 B");
  says(Tier::Host, 703,
       "instruction 1, load out: holds 704 B on the tier host whose budget is 703 B");
  says(Tier::Host, 0, "instruction 0, load make: holds 512 B on the tier host");
  says(Tier::Disk, 4095, "instruction 3, load write: holds 4096 B on the tier disk");
  says(Tier::Disk, 0, "instruction 3, load write: holds 4096 B on the tier disk");
  program.tier(Tier::Device).budget_bytes = 1256;
  EXPECT_EQ(over_budget(program), "");
  Program idle;
  idle.buffers = {{"state", BufferKind::OptimizerState, 512, 0, 0, Tier::Host, true, true}};
  EXPECT_NE(over_budget(idle).find("start of the step: holds 512 B"), std::string::npos);
}

// What is live, by walking through the list with a set.
TEST(Tiers, LiveSetsAreThoseOfTheList) {
  std::vector<Program> programs = {offloading()};
  for (unsigned seed = 0; seed < 20; ++seed) {
    const ModelGraph graph = random_graph(seed);
    programs.push_back(make_training_program(graph,
                                             step_shape(2, 1 + static_cast<int>(seed) % 2, 0),
                                             same_for_all(schedule_of(graph, "full"), 2)));
  }
  for (const Program& program : programs) {
    ASSERT_NO_THROW(replay(program));
    std::set<int> live;
    for (std::size_t id = 0; id < program.buffers.size(); ++id) {
      if (program.buffers[id].live_at_start) live.insert(static_cast<int>(id));
    }
    EXPECT_EQ(live_during(program, -1), std::vector<int>(live.begin(), live.end()));
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      live.insert(instruction.writes.begin(), instruction.writes.end());
      ASSERT_EQ(live_during(program, static_cast<int>(i)),
                std::vector<int>(live.begin(), live.end()));
      for (const Tier tier : {Tier::Device, Tier::Host, Tier::Disk}) {
        BytesByKind slow{};
        for (const int id : live) {
          const Buffer& buffer = program.buffers[as_index(id)];
          if (buffer.tier == tier) slow[static_cast<std::size_t>(buffer.kind)] += buffer.bytes;
        }
        ASSERT_EQ(bytes_by_kind(program, tier).at(i), slow);
      }
      for (const int freed : instruction.frees) live.erase(freed);
    }
  }
}

}  // namespace
}  // namespace garonne::plan::test
