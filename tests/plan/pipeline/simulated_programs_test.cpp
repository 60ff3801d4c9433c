// A schedule that is simulated, and the Programs of its stages that are replayed together: the same
// seconds where both know the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>

#include "base/error.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/pipeline/simulation.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan {
namespace {

// A node for each part of a pipeline, between two that take no time: the first, which has no
// gradient of its input to make, and the loss.
ModelGraph model_of(const std::vector<PhaseSeconds>& parts) {
  ModelGraph graph = test::chain(static_cast<int>(parts.size()) + 1, 1);
  for (NodeSpec* const node : {&graph.nodes.front(), &graph.nodes.back()})
    node->forward.seconds = node->forward_keep.seconds = node->backward.seconds = 0;
  for (std::size_t part = 0; part < parts.size(); ++part) {
    NodeSpec& node = graph.nodes[part + 1];
    node.private_slot_bytes.clear();
    node.splits_backward = true;
    node.forward.seconds = node.forward_keep.seconds = parts[part].forward;
    node.backward.seconds = parts[part].backward_input;
    node.backward_weight.seconds = parts[part].backward_weight;
  }
  return graph;
}

// What is no pass and no message takes no time: `simulate` knows of none.
double replayed(const PipelineSchedule& schedule, const std::vector<PhaseSeconds>& parts,
                double message) {
  const ModelGraph whole = model_of(parts);
  std::vector<Program> programs;
  for (int stage = 0; stage < schedule.devices; ++stage) {
    PipelineStage cut = make_pipeline_stage(whole, schedule, stage);
    StepShape step = test::step_shape(schedule.micro_batches, 1, 0);
    step.world_group.clear();
    for (int rank = 0; rank < schedule.devices; ++rank) step.world_group.push_back(rank);
    step.data_group = {stage};
    step.pipeline = std::move(cut.place);
    step.pipeline.group = step.world_group;
    const ModelGraph& graph = cut.cut.graph;
    programs.push_back(make_training_program(
        graph, step, same_for_all(test::schedule_of(graph, "keep-all"), schedule.micro_batches)));
    programs.back().rank = stage;
    for (Instruction& instruction : programs.back().instructions) {
      const bool sent = is_message(instruction.operation);
      if (!is_forward(instruction.operation) && !is_backward(instruction.operation))
        instruction.seconds = sent ? message : 0;
    }
  }
  double seconds = 0;
  for (const Prediction& prediction : replay_pipeline(std::move(programs)))
    seconds = std::max(seconds, prediction.seconds);
  return seconds;
}

PipelineCosts costs_of(const PipelineSchedule& schedule, const std::vector<PhaseSeconds>& parts,
                       double message) {
  PipelineCosts costs;
  costs.chunks.resize(as_index(schedule.devices * schedule.chunks));
  for (const PipelineRoute& route :
       pipeline_routes(schedule.placement, schedule.devices, schedule.chunks)) {
    for (std::size_t part = 0; part < route.size(); ++part)
      costs.chunks[as_index(route[part].device * schedule.chunks + route[part].chunk)] =
          parts[part];
  }
  costs.hop_seconds = message;
  return costs;
}

bool splits(const PipelineSchedule& schedule) {
  const auto& order = schedule.order.front();
  return std::any_of(order.begin(), order.end(), [](const PipelineOperation& one) {
    return one.work == PipelineWork::BackwardWeight;
  });
}

// Of its operations.
double shortest_of(const PipelineSchedule& schedule, const std::vector<PhaseSeconds>& parts) {
  double shortest = parts.front().forward;
  for (const PhaseSeconds& part : parts) {
    shortest = std::min({shortest, part.forward, part.backward_input + part.backward_weight});
    if (splits(schedule))
      shortest = std::min({shortest, part.backward_input, part.backward_weight});
  }
  return shortest;
}

struct Drawn {
  PipelineSchedule schedule;
  std::vector<PhaseSeconds> parts;
};

// None where the schedule refuses the sizes.
std::optional<Drawn> draw(const std::string& name, std::mt19937& random) {
  PipelineRequest request;
  request.stages = 2 + static_cast<int>(random() % 5);
  request.micro_batches = 1 + static_cast<int>(random() % 13);
  if (name == "interleaved") request.chunks = 1 + static_cast<int>(random() % 3);
  Drawn drawn;
  try {
    drawn.schedule = make_pipeline_schedule(name, request);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
  const auto routes =
      pipeline_routes(drawn.schedule.placement, drawn.schedule.devices, drawn.schedule.chunks);
  const auto seconds = [&] { return 1 + static_cast<double>(random() % 1000) / 250; };
  for (std::size_t part = 0; part < routes.front().size(); ++part)
    drawn.parts.push_back({seconds(), seconds(), seconds()});
  return drawn;
}

// Of each schedule; GARONNE_RANDOM_PIPELINES says how many.
int pipelines() {
  const char* const number = std::getenv("GARONNE_RANDOM_PIPELINES");
  return number == nullptr ? 12 : std::atoi(number);
}

// Calls `compare` for random pipelines of every schedule of which there are Programs.
template <typename Compare>
void for_every_schedule(const Compare& compare) {
  std::mt19937 random(20);
  for (const PipelineScheduleKind& kind : pipeline_schedule_kinds()) {
    const std::string name(kind.name);
    if (name == "file") continue;
    int compared = 0;
    int without_programs = 0;
    for (int attempt = 0; attempt < 20 * pipelines() && compared < pipelines(); ++attempt) {
      if (testing::Test::HasFailure()) return;
      const std::optional<Drawn> drawn = draw(name, random);
      if (!drawn) continue;
      SCOPED_TRACE(name + ", " + std::to_string(drawn->schedule.devices) + " stages, " +
                   std::to_string(drawn->schedule.micro_batches) + " micro-batches, " +
                   std::to_string(drawn->schedule.chunks) + " chunks");
      try {
        make_pipeline_stage(model_of(drawn->parts), drawn->schedule, 0);
      } catch (const ConfigError&) {
        ++without_programs;
        continue;
      }
      compare(*drawn, random);
      ++compared;
    }
    // Runs forwards again where it says, which no Program does.
    EXPECT_EQ(compared, name == "varuna" ? 0 : pipelines()) << name;
    EXPECT_EQ(without_programs > 0, name == "varuna" || name == "chimera") << name;
  }
}

// Messages that take no longer than the shortest operation: what was sent is there an operation
// later on both sides, and a link is free again before the next is sent over it.
TEST(SimulatedPrograms, TakeTheSecondsOfTheirSchedule) {
  double worst = 0;
  for_every_schedule([&](const Drawn& drawn, std::mt19937& random) {
    const double shortest = shortest_of(drawn.schedule, drawn.parts);
    for (const double share : {0.0, static_cast<double>(random() % 1000) / 1000, 1.0}) {
      const double message = share * shortest;
      const double simulated =
          simulate_pipeline(drawn.schedule, costs_of(drawn.schedule, drawn.parts, message))
              .makespan;
      const double programs = replayed(drawn.schedule, drawn.parts, message);
      EXPECT_NEAR(programs, simulated, 0.01 * simulated) << message;
      worst = std::max(worst, std::abs(programs / simulated - 1));
    }
  });
  std::printf("replayed to simulated: worst %.5f\n", worst);
}

// Longer messages: a Program receives one operation ahead, for more it would hold more bytes, and
// messages from a device to another follow each other; a schedule alone knows neither, so that it
// takes no longer than its Programs. They in turn take no longer than a schedule whose operations
// all last for a message more, behind which what they made is there: by induction over operations,
// a message begins when its sender's operation has ended, the one before it on its link has come,
// and its receiver is at the operation before the one that needs it, all of which are at least a
// message before the times that this schedule has for that operation. That a sender also waits for
// the last but two of the gradients that a chunk of it has sent is no part of that; of thousands of
// pipelines (plan_pipeline_long) it has made none longer than this.
TEST(SimulatedPrograms, TakeLongerWhereMessagesDo) {
  int longer = 0;
  for_every_schedule([&](const Drawn& drawn, std::mt19937& random) {
    const double message = 1 + static_cast<double>(random() % 1000) / 50;
    const double simulated =
        simulate_pipeline(drawn.schedule, costs_of(drawn.schedule, drawn.parts, message)).makespan;
    PipelineCosts behind = costs_of(drawn.schedule, drawn.parts, 0);
    for (PhaseSeconds& chunk : behind.chunks) {
      chunk.forward += message;
      chunk.backward_input += message;
      if (splits(drawn.schedule)) chunk.backward_weight += message;
    }
    const double most = simulate_pipeline(drawn.schedule, behind).makespan;
    const double programs = replayed(drawn.schedule, drawn.parts, message);
    EXPECT_GE(programs, simulated * (1 - 1e-9)) << message;
    EXPECT_LE(programs, most * (1 + 1e-9)) << message;
    longer += programs > 1.01 * simulated;
  });
  EXPECT_GT(longer, 10);
}

}  // namespace
}  // namespace garonne::plan
