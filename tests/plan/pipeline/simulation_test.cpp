// Every schedule over random sizes and costs: accepted by the check, timed as a slow reference
// times it, above lower bounds, and as its formulas say.
#include "plan/pipeline/simulation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.hpp"
#include "plan/pipeline/schedule_check.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/pipeline/slow_pipeline.hpp"

namespace garonne::plan::test {
namespace {

std::vector<std::string> made_schedules() {
  std::vector<std::string> names;
  for (const auto& kind : pipeline_schedule_kinds()) {
    if (kind.name != "file") names.emplace_back(kind.name);
  }
  return names;
}

bool refuses(const std::string& name, int stages) {
  return name == "chimera" && stages % 2 == 1;
}

PipelineSchedule make(const std::string& name, int stages, int micro_batches,
                      std::optional<int> chunks = std::nullopt,
                      std::optional<int> group_size = std::nullopt) {
  return make_pipeline_schedule(name, {stages, micro_batches, chunks, group_size, ""});
}

TEST(PipelineSimulation, EverySizeIsAcceptedAndEnds) {
  for (const std::string& name : made_schedules()) {
    for (int stages = 1; stages <= 8; ++stages) {
      if (refuses(name, stages)) continue;
      for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
        const PipelineSchedule schedule = make(name, stages, micro_batches);
        PipelineCosts costs = even_costs(schedule, {1, 1, 1});
        const PipelineOutcome outcome = simulate_pipeline(schedule, costs);
        EXPECT_GE(outcome.bubble, 0) << name << " " << stages << " " << micro_batches;
        // Pairs that start together must not wait for one another either.
        costs.overlap_gain = 0;
        EXPECT_GE(simulate_pipeline(schedule, costs).makespan, outcome.makespan);
      }
    }
  }
}

TEST(PipelineSimulation, InterleavedTakesAnyChunksAndGroups) {
  for (int stages = 1; stages <= 8; ++stages) {
    for (int micro_batches = 1; micro_batches <= 32; ++micro_batches) {
      for (int chunks = 1; chunks <= 5; ++chunks) {
        for (const int group : {stages, stages + 1, 2 * stages, 2 * stages + 1}) {
          const PipelineSchedule schedule =
              make("interleaved", stages, micro_batches, chunks, group);
          EXPECT_EQ(find_fault(schedule), std::nullopt);
        }
      }
    }
  }
}

TEST(PipelineSimulation, AgreesWithASlowReference) {
  std::mt19937 random(7);
  for (int round = 0; round < 150; ++round) {
    for (const std::string& name : made_schedules()) {
      const int stages = 1 + static_cast<int>(random() % 8);
      if (refuses(name, stages)) continue;
      const PipelineSchedule schedule = make(name, stages, 1 + static_cast<int>(random() % 32));
      PipelineCosts costs;
      for (int i = 0; i < schedule.devices * schedule.chunks; ++i) {
        costs.chunks.push_back(random_phases(random));
      }
      if (round % 2 == 1) costs.hop_seconds = 0.01 * static_cast<double>(random() % 100);
      const PipelineOutcome outcome = simulate_pipeline(schedule, costs);
      const auto starts = slow_starts(schedule, costs);
      ASSERT_TRUE(starts.has_value()) << name;
      for (std::size_t r = 0; r < starts->size(); ++r) {
        ASSERT_EQ(outcome.timeline[r].size(), (*starts)[r].size());
        for (std::size_t i = 0; i < (*starts)[r].size(); ++i) {
          EXPECT_NEAR(outcome.timeline[r][i].start, (*starts)[r][i], 1e-9) << name;
        }
      }
      EXPECT_EQ(outcome.peak_activations, slow_peaks(schedule, outcome)) << name;
    }
  }
}

TEST(PipelineSimulation, OperationsThatRunTogetherAreBothHeld) {
  std::mt19937 random(8);
  for (int stages = 1; stages <= 8; ++stages) {
    const PipelineSchedule schedule = make("dualpipev", stages, 3 * stages);
    PipelineCosts costs = even_costs(schedule, random_phases(random));
    costs.overlap_gain = 0.3;
    const PipelineOutcome outcome = simulate_pipeline(schedule, costs);
    EXPECT_EQ(outcome.peak_activations, slow_peaks(schedule, outcome));
    int together = 0;
    for (const auto& lane : outcome.timeline) {
      for (std::size_t i = 0; i + 1 < lane.size(); ++i) {
        if (lane[i].operation.overlaps_next) {
          ++together;
          EXPECT_EQ(lane[i].start, lane[i + 1].start);
          EXPECT_EQ(lane[i].end, lane[i + 1].end);
          const double seconds =
              costs.chunks[0].sum() * 0.7;  // a forward and a whole backward of equal chunks
          EXPECT_NEAR(lane[i].end - lane[i].start, seconds, 1e-9);
        }
      }
    }
    EXPECT_GT(together, 0);
  }
}

TEST(PipelineSimulation, LowerBounds) {
  std::mt19937 random(9);
  for (int round = 0; round < 100; ++round) {
    const PhaseSeconds phases = random_phases(random);
    const double hop = 0.001 * static_cast<double>(random() % 1000);
    const int stages = 1 + static_cast<int>(random() % 8);
    const int micro_batches = 1 + static_cast<int>(random() % 32);
    for (const std::string& name : made_schedules()) {
      if (refuses(name, stages)) continue;
      const PipelineSchedule schedule = make(name, stages, micro_batches);
      PipelineCosts costs = even_costs(schedule, phases);
      costs.hop_seconds = hop;
      const PipelineOutcome outcome = simulate_pipeline(schedule, costs);
      const double tolerance = 1e-9;
      EXPECT_GE(outcome.makespan, micro_batches * phases.sum() - tolerance) << name;
      // One micro-batch down the model and its gradient back, over every link in between.
      EXPECT_GE(outcome.makespan, stages * (phases.forward + phases.backward_input) +
                                      2 * (stages - 1) * hop - tolerance)
          << name;
      EXPECT_NEAR(outcome.bubble, outcome.makespan - micro_batches * phases.sum(), 1e-9);
      costs.hop_seconds = 0;
      EXPECT_LE(simulate_pipeline(schedule, costs).makespan, outcome.makespan + tolerance) << name;
    }
  }
}

struct Sizes {
  int stages;
  int micro_batches;
  PhaseSeconds phases;
};

std::vector<Sizes> random_sizes(unsigned seed, int rounds) {
  std::mt19937 random(seed);
  std::vector<Sizes> result;
  for (int i = 0; i < rounds; ++i) {
    const int stages = 1 + static_cast<int>(random() % 8);
    result.push_back({stages, 1 + static_cast<int>(random() % 32), random_phases(random)});
  }
  return result;
}

PipelineOutcome simulate_even(const PipelineSchedule& schedule, const PhaseSeconds& phases) {
  return simulate_pipeline(schedule, even_costs(schedule, phases));
}

TEST(PipelineFormulas, GpipeAndOneForwardOneBackward) {
  for (const Sizes& s : random_sizes(1, 200)) {
    const double bubble = (s.stages - 1) * s.phases.sum();
    const PipelineOutcome gpipe = simulate_even(make("gpipe", s.stages, s.micro_batches), s.phases);
    const PipelineOutcome turns = simulate_even(make("1f1b", s.stages, s.micro_batches), s.phases);
    EXPECT_NEAR(gpipe.bubble, bubble, 1e-9);
    EXPECT_NEAR(turns.bubble, bubble, 1e-9);
    for (int r = 0; r < s.stages; ++r) {
      EXPECT_EQ(gpipe.peak_activations[static_cast<std::size_t>(r)], s.micro_batches);
      EXPECT_EQ(turns.peak_activations[static_cast<std::size_t>(r)],
                std::min(s.stages - r, s.micro_batches));
    }
  }
}

TEST(PipelineFormulas, Interleaved) {
  for (const Sizes& s : random_sizes(2, 200)) {
    for (int chunks = 1; chunks <= 4; ++chunks) {
      const PipelineOutcome whole_groups = simulate_even(
          make("interleaved", s.stages, s.stages * (1 + s.micro_batches / 8), chunks), s.phases);
      EXPECT_NEAR(whole_groups.bubble, (s.stages - 1) * s.phases.sum() / chunks, 1e-9);
      const PipelineOutcome any =
          simulate_even(make("interleaved", s.stages, s.micro_batches, chunks), s.phases);
      for (int r = 0; r < s.stages; ++r) {
        const int warm = 2 * (s.stages - 1 - r) + (chunks - 1) * s.stages + 1;
        const double peak = std::min(s.micro_batches * chunks, warm) / static_cast<double>(chunks);
        const double held = any.peak_activations[static_cast<std::size_t>(r)];
        if (s.micro_batches % s.stages == 0 || s.micro_batches < s.stages) {
          EXPECT_EQ(held, peak);
        } else {
          EXPECT_LE(held, peak);
        }
      }
    }
  }
}

TEST(PipelineFormulas, ZbH1) {
  for (const Sizes& s : random_sizes(3, 400)) {
    if (s.micro_batches < s.stages) continue;
    const PipelineOutcome outcome =
        simulate_even(make("zb-h1", s.stages, s.micro_batches), s.phases);
    const auto& [f, b, w] = s.phases;
    EXPECT_NEAR(outcome.bubble, (s.stages - 1) * std::max({f, b, f + b - w}), 1e-9);
    for (const double peak : outcome.peak_activations) EXPECT_EQ(peak, s.stages);
  }
}

TEST(PipelineFormulas, PeaksOfTheOthers) {
  for (const Sizes& s : random_sizes(4, 200)) {
    const int enough = std::max(s.micro_batches, 2 * s.stages);
    for (const auto& [name, peak] :
         {std::pair{"zb-h2", 2.0 * s.stages - 1}, std::pair{"zb-v", 1.0 * s.stages},
          std::pair{"dualpipev", s.stages + 0.5}}) {
      for (const double held :
           simulate_even(make(name, s.stages, enough), s.phases).peak_activations) {
        EXPECT_EQ(held, peak) << name;
      }
      // Fewer micro-batches never hold more.
      for (const double held :
           simulate_even(make(name, s.stages, s.micro_batches), s.phases).peak_activations) {
        EXPECT_LE(held, peak) << name;
      }
    }
  }
}

TEST(PipelineFormulas, EqualPhases) {
  for (int stages = 2; stages <= 8; ++stages) {
    for (int micro_batches = 2 * stages; micro_batches <= 32; ++micro_batches) {
      const auto bubble = [&](const char* name) {
        return simulate_even(make(name, stages, micro_batches), {1, 1, 1}).bubble;
      };
      EXPECT_NEAR(bubble("zb-h2"), stages - 1, 1e-9);
      EXPECT_NEAR(bubble("zb-v"), (stages - 1) / 2.0, 1e-9);
      EXPECT_NEAR(bubble("dualpipev"), (stages - 1) / 2.0, 1e-9);
      if (stages % 2 == 0 && micro_batches % stages == 0) {
        const PipelineSchedule chimera = make("chimera", stages, micro_batches);
        const PipelineOutcome outcome = simulate_even(chimera, {1, 1, 0});
        EXPECT_NEAR(outcome.bubble, stages - 2, 1e-9);
        for (int r = 0; r < stages; ++r) {
          const int from_end = std::min(r, stages - 1 - r);
          EXPECT_EQ(outcome.peak_activations[static_cast<std::size_t>(r)],
                    stages / 2 + 1 + from_end);
        }
      }
    }
  }
}

TEST(PipelineFormulas, VarunaHoldsOneRecomputedMicroBatch) {
  for (const Sizes& s : random_sizes(5, 100)) {
    const PipelineOutcome outcome =
        simulate_even(make("varuna", s.stages, s.micro_batches), s.phases);
    for (const double peak : outcome.peak_activations) EXPECT_EQ(peak, 1);
    if (s.stages == 1) continue;
    for (std::size_t r = 1; r < outcome.peak_inputs.size(); ++r) {
      EXPECT_LE(outcome.peak_inputs[r], outcome.peak_inputs[r - 1]);
    }
    EXPECT_EQ(outcome.peak_inputs.back(), 1);
  }
}

TEST(PipelineSimulation, RefusesCostsOfAnotherSchedule) {
  const PipelineSchedule schedule = make("1f1b", 4, 4);
  PipelineCosts costs = even_costs(schedule, {1, 1, 1});
  costs.chunks.pop_back();
  EXPECT_THROW(simulate_pipeline(schedule, costs), InternalError);
}

}  // namespace
}  // namespace garonne::plan::test
