// The choice of what spends its idle time elsewhere, against the best of all choices on small
// chains.
#include "plan/offload/offload_search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "plan/offload/bandwidth_bound.hpp"
#include "plan/program/live_bytes.hpp"
#include "plan/program/order_check.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan::test {
namespace {

constexpr double impossible = std::numeric_limits<double>::infinity();
// What chains count in, so that no granularity rounds.
constexpr std::int64_t unit = 64;

// Blocks whose records contain their outputs, as lists of forwards and backwards: a record of 2, an
// input and gradients of 1; 1 s forward and 2 s backward.
Program record_chain(int blocks) {
  Program program;
  const auto add = [&](const std::string& name, BufferKind kind, std::int64_t units) {
    Buffer buffer;
    buffer.name = name;
    buffer.kind = kind;
    buffer.bytes = units * unit;
    program.buffers.push_back(buffer);
    return static_cast<int>(program.buffers.size()) - 1;
  };
  const int input = add("input", BufferKind::ValueGradient, 1);
  program.buffers.back().live_at_start = true;
  std::vector<int> records;
  for (int i = 0; i < blocks; ++i)
    records.push_back(add("record" + std::to_string(i), BufferKind::Record, 2));
  std::vector<int> gradients;
  for (int i = 0; i <= blocks; ++i)
    gradients.push_back(add("gradient" + std::to_string(i), BufferKind::ValueGradient, 1));
  program.buffers.back().live_at_start = true;
  program.buffers[as_index(gradients[0])].live_at_end = true;
  const auto before = [&](int i) { return i == 0 ? input : records[as_index(i - 1)]; };
  for (int i = 0; i < blocks; ++i) {
    Instruction forward;
    forward.operation = Operation::Load;
    forward.reads = {before(i)};
    forward.writes = {records[as_index(i)]};
    forward.seconds = 1;
    program.instructions.push_back(forward);
  }
  for (int i = blocks - 1; i >= 0; --i) {
    Instruction backward;
    backward.operation = Operation::Load;
    backward.reads = {records[as_index(i)], before(i), gradients[as_index(i + 1)]};
    backward.writes = {gradients[as_index(i)]};
    backward.frees = {records[as_index(i)], gradients[as_index(i + 1)]};
    if (i == 0) backward.frees.push_back(input);
    backward.seconds = 2;
    program.instructions.push_back(backward);
  }
  return program;
}

std::map<Tier, LowerTier> host(double units_per_second, std::int64_t budget = 1 << 20) {
  const Link link{0, units_per_second * static_cast<double>(unit)};
  return {{Tier::Host, {{link, link}, budget}}};
}

double seconds_of(const Program& program, const std::vector<Offload>& offloads,
                  const OffloadRequest& request) {
  std::map<Tier, TierLinks> links;
  for (const auto& [tier, below] : request.tiers) links[tier] = below.links;
  const Program with = with_offloads(program, offloads, links);
  const Prediction prediction = replay(with);
  check_order(with);
  if (prediction.peak_bytes > request.budget_bytes) return impossible;
  for (const auto& [tier, below] : request.tiers) {
    if (prediction.of(tier).peak_bytes > below.budget_bytes) return impossible;
  }
  return prediction.seconds;
}

// Every subset of the idle times, away between any two places.
double best_of_all(const Program& program, const OffloadRequest& request) {
  const std::vector<IdleTime> idle = idle_times(program);
  double best = impossible;
  std::vector<Offload> chosen;
  const std::function<void(std::size_t)> choose = [&](std::size_t k) {
    if (k == idle.size()) {
      best = std::min(best, seconds_of(program, chosen, request));
      return;
    }
    choose(k + 1);
    for (int room = idle[k].last_use + 1; room < idle[k].next_use; ++room) {
      for (int back = room + 1; back <= idle[k].next_use; ++back) {
        chosen.push_back({idle[k], Tier::Host, idle[k].complete_at, room, back});
        choose(k + 1);
        chosen.pop_back();
      }
    }
  };
  choose(0);
  return best;
}

double found(const Program& program, const OffloadRequest& request) {
  const auto offloads = choose_offloads(program, request);
  return offloads ? seconds_of(program, *offloads, request) : impossible;
}

// Optima that another program has found by a search over states, whose records leave once.
TEST(OffloadSearch, ReferenceValuesOfRecordChains) {
  const std::map<std::tuple<int, double>, std::map<int, double>> optima = {
      {{4, 0.5}, {{7, 26}, {8, 25}, {9, 16}, {10, 15}, {11, 12}}},
      {{4, 1}, {{7, 18}, {8, 17}, {9, 12}, {10, 12}, {11, 12}}},
      {{5, 0.5}, {{7, 36}, {8, 35}, {9, 24}, {10, 23}, {11, 16}, {12, 15}, {13, 15}}},
      {{6, 0.5}, {{7, 46}, {8, 45}, {9, 32}, {10, 31}, {11, 24}, {12, 23}, {13, 18}}},
      {{6, 1}, {{7, 30}, {8, 29}, {9, 20}, {10, 19}, {11, 18}, {12, 18}, {13, 18}}},
      {{5, 1}, {{7, 24}, {8, 23}, {9, 16}, {10, 15}, {11, 15}, {12, 15}, {13, 15}}},
  };
  int cells = 0;
  int equal = 0;
  for (const auto& [which, by_budget] : optima) {
    const auto& [blocks, rate] = which;
    const Program program = record_chain(blocks);
    ASSERT_EQ(replay(program).peak_bytes, (2 * blocks + 3) * unit);
    for (const auto& [budget, optimum] : by_budget) {
      SCOPED_TRACE(std::to_string(blocks) + " blocks, rate " + std::to_string(rate) + ", budget " +
                   std::to_string(budget));
      const OffloadRequest request{budget * unit, host(rate), 0};
      // Of six blocks there are too many choices to try.
      if (blocks < 6) {
        EXPECT_DOUBLE_EQ(best_of_all(program, request), optimum);
      }
      const double seconds = found(program, request);
      EXPECT_GE(seconds, optimum);
      EXPECT_LE(seconds, 1.5 * optimum);
      ++cells;
      equal += seconds == optimum;
    }
  }
  std::printf("%d of %d cells at their optimum\n", equal, cells);
  EXPECT_GE(10 * equal, 9 * cells);
}

// Of 500 chains, or as many as GARONNE_RANDOM_CHAINS says.
unsigned random_chains() {
  const char* const given = std::getenv("GARONNE_RANDOM_CHAINS");
  return given == nullptr ? 500 : static_cast<unsigned>(std::stoul(given));
}

TEST(OffloadSearch, NeverBelowTheBestOfAllChoicesNorTheBoundAbove) {
  int cells = 0;
  int equal = 0;
  int feasible = 0;
  int tight = 0;
  int longer = 0;
  int binding = 0;
  for (unsigned seed = 0; seed < random_chains(); ++seed) {
    std::mt19937 random(seed);
    Program program = record_chain(3 + static_cast<int>(seed % 2));
    const auto up_to = [&](unsigned most) {
      return 1 + static_cast<std::int64_t>(random() % most);
    };
    for (Buffer& buffer : program.buffers) buffer.bytes = unit * up_to(4);
    for (Instruction& instruction : program.instructions)
      instruction.seconds = static_cast<double>(up_to(4));
    const std::int64_t most = replay(program).peak_bytes;
    for (const double share : {0.6, 0.75, 0.9, 1.0}) {
      const OffloadRequest request{
          static_cast<std::int64_t>(share * static_cast<double>(most)) / unit * unit,
          host(static_cast<double>(up_to(4)) / 2), 0};
      const double best = best_of_all(program, request);
      const double seconds = found(program, request);
      EXPECT_GE(seconds, best) << seed;
      EXPECT_EQ(seconds == impossible, best == impossible) << seed << " " << share;
      const double bound = least_step_seconds(program, request, nullptr);
      EXPECT_LE(bound, best * (1 + 1e-9)) << seed << " " << share;
      feasible += best != impossible;
      if (best == impossible) continue;
      ++cells;
      equal += seconds <= best + 1e-9;
      tight += bound >= best - 1e-9;
      longer += best > replay(program).seconds + 1e-9;
      binding += bound > replay(program).seconds + 1e-9;
    }
  }
  std::printf("%d of %d cells at the best of all choices\n", equal, cells);
  std::printf("the bound is reached in %d, above keep-all in %d of %d that are\n", tight, binding,
              longer);
  EXPECT_GT(2 * binding, longer);
  EXPECT_GT(feasible, 100);
  EXPECT_GE(100 * equal, 98 * cells);
}

// Whole steps: within all budgets, and less is lost the faster the link.
TEST(OffloadSearch, KeepsToAllBudgets) {
  int moved = 0;
  int none = 0;
  int within = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const ModelGraph graph = random_graph(seed);
    Program program = make_training_program(graph, step_shape(2, 1, 0),
                                            same_for_all(schedule_of(graph, "keep-all"), 2));
    program.tier(Tier::Host).granularity = 256;
    const Prediction keeping = replay(program);
    const std::int64_t dynamic = keeping.peak_bytes - keeping.static_bytes;
    for (const int percent : {100, 90, 80, 70, 60}) {
      OffloadRequest request{keeping.static_bytes + dynamic * percent / 100, host(1e4), 0};
      const auto offloads = choose_offloads(program, request);
      if (!offloads) {
        ++none;
        continue;
      }
      ++within;
      const double seconds = seconds_of(program, *offloads, request);
      EXPECT_NE(seconds, impossible);
      EXPECT_GE(seconds, keeping.seconds);
      EXPECT_EQ(offloads->empty(), percent == 100);
      moved += static_cast<int>(offloads->size());
      // A tier that is too small is not used beyond its budget.
      std::map<Tier, TierLinks> links = {{Tier::Host, request.tiers.at(Tier::Host).links}};
      const std::int64_t used = replay(with_offloads(program, *offloads, links)).host.peak_bytes;
      request.tiers.at(Tier::Host).budget_bytes = used - 1;
      const auto others = choose_offloads(program, request);
      if (others && used > 0) {
        EXPECT_NE(seconds_of(program, *others, request), impossible);
      }
    }
  }
  EXPECT_GT(moved, 200);
  std::printf("%d within their budgets, %d cannot be\n", within, none);
  EXPECT_GT(within, 120);
}

TEST(OffloadSearch, SmallBuffersStay) {
  const Program program = record_chain(5);
  EXPECT_TRUE(choose_offloads(program, {9 * unit, host(1), 2 * unit}).has_value());
  EXPECT_FALSE(choose_offloads(program, {9 * unit, host(1), 2 * unit + 1}).has_value());
  EXPECT_FALSE(choose_offloads(program, {9 * unit, host(1, unit), 0}).has_value());
}

}  // namespace
}  // namespace garonne::plan::test
