// The trace of a run and what becomes of it.
#include "train/run/step_tracer.hpp"

#include "train/scratch.hpp"

namespace garonne::train::test {
namespace {

TEST(StepTracer, AsMuchAsCanBeGatheredIsWrittenAndTheRunGoesOnWithoutMore) {
  const Scratch scratch;
  dist::Session session = dist::Session::start();
  const plan::Program program;
  const auto outcome_of = [&](const std::string& name, std::int64_t most_bytes) {
    StepTracer tracer({.path = scratch.path(name), .first_step = 1, .steps = 1}, 1, 1, program,
                      most_bytes);
    EXPECT_TRUE(tracer.take(1, std::chrono::system_clock::now(), 0.5, {}, session));
    EXPECT_FALSE(tracer.finish(session)) << "once is enough";
    return tracer.outcome();
  };
  EXPECT_EQ(outcome_of("too-much.json", 10).find("warning: --trace: 1 step on 1 rank are "), 0);
  EXPECT_FALSE(std::filesystem::exists(scratch.path("too-much.json")));
  EXPECT_EQ(outcome_of("trace.json", StepTracer::usual_bytes).find("trace of 1 steps"), 0);
  EXPECT_TRUE(std::filesystem::exists(scratch.path("trace.json")));
}

}  // namespace
}  // namespace garonne::train::test
