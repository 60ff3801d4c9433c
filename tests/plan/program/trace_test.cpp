#include "plan/program/trace.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.hpp"

namespace garonne::plan {
namespace {

Instruction instruction(Operation operation, const std::string& node, Lane lane = Lane::Compute,
                        int completes = -1) {
  Instruction made;
  made.operation = operation;
  made.node = node;
  made.lane = lane;
  made.completes = completes;
  made.seconds = 0.5;
  return made;
}

// A forward, a sum that begins beside it and ends at the wait, and a quotation mark in a name.
Program small_program() {
  Program program;
  program.rank = 3;
  program.instructions = {instruction(Operation::Forward, "a \"quoted\" node"),
                          instruction(Operation::AllReduce, "bucket", Lane::Collective),
                          instruction(Operation::Backward, "b"),
                          instruction(Operation::Wait, "bucket", Lane::Compute, 1),
                          instruction(Operation::Update, "all")};
  Channel channel;
  channel.kind = "all-reduce";
  channel.bytes = 4096;
  channel.tag = 7;
  program.instructions[1].channel = channel;
  return program;
}

TEST(Trace, WorkBesideLastsFromItsIssueToTheEndOfItsWait) {
  const Program program = small_program();
  TracedStep step;
  step.step = 12;
  step.begin_seconds = 2;
  step.seconds = 1.5;
  for (const double seconds : {0.5, 0.125, 0.25, 0.375, 0.25})
    step.measurements.push_back({seconds, 64, 128});
  step.live_bytes_below[Tier::Disk] = {0, 0, 512, 512, 0};
  const auto json = nlohmann::json::parse(trace_file({"", trace_events(program, "host", {step})}));
  std::vector<double> begins;
  double counted = 0;
  for (const auto& event : json.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), 3);
    if (event.at("ph") == "X" && event.at("cat") != "step") begins.push_back(event.at("ts"));
    if (event.at("ph") == "b") {
      EXPECT_EQ(event.at("ts"), 2.5e6);
      EXPECT_EQ(event.at("args").at("bytes"), 4096);
    }
    if (event.at("ph") == "e") {
      EXPECT_EQ(event.at("ts"), 3.25e6);
    }
    if (event.at("ph") == "C") counted += event.at("args").at("disk").get<double>();
  }
  EXPECT_EQ(begins, (std::vector<double>{2e6, 2.5e6, 2.625e6, 2.875e6, 3.25e6}));
  EXPECT_EQ(counted, 1024);
}

TEST(Trace, MeasurementsOfAnotherProgramAreRefused) {
  TracedStep step;
  step.measurements.resize(2);
  EXPECT_THROW(trace_events(small_program(), "host", {step}), InternalError);
}

}  // namespace
}  // namespace garonne::plan
