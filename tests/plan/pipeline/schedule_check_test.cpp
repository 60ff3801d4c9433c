// What the check rejects, with the device and operation that it names, and random damage against a
// slow reference.
#include "plan/pipeline/schedule_check.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plan/pipeline/schedule_registry.hpp"
#include "plan/pipeline/slow_pipeline.hpp"

namespace garonne::plan::test {
namespace {

using enum PipelineWork;

PipelineSchedule made_schedule(const std::string& name, int stages, int micro_batches) {
  PipelineRequest request;
  request.stages = stages;
  request.micro_batches = micro_batches;
  return make_pipeline_schedule(name, request);
}

std::size_t find(const std::vector<PipelineOperation>& order, PipelineWork work, int chunk, int m) {
  const auto found = std::find_if(order.begin(), order.end(), [&](const auto& operation) {
    return operation.work == work && operation.chunk == chunk && operation.micro_batch == m;
  });
  EXPECT_NE(found, order.end());
  return static_cast<std::size_t>(found - order.begin());
}

void expect_fault(const PipelineSchedule& schedule, int device, PipelineWork work, int chunk, int m,
                  const std::string& words) {
  const auto fault = find_fault(schedule);
  ASSERT_TRUE(fault.has_value()) << words;
  SCOPED_TRACE(describe(*fault));
  EXPECT_EQ(fault->device, device);
  EXPECT_EQ(fault->operation.work, work);
  EXPECT_EQ(fault->operation.chunk, chunk);
  EXPECT_EQ(fault->operation.micro_batch, m);
  EXPECT_NE(fault->reason.find(words), std::string::npos);
}

TEST(ScheduleCheck, ALostOperation) {
  for (const auto work : {Forward, BackwardInput, BackwardWeight}) {
    PipelineSchedule schedule = made_schedule("zb-h1", 4, 6);
    auto& order = schedule.order[2];
    order.erase(order.begin() + static_cast<std::ptrdiff_t>(find(order, work, 0, 3)));
    if (work == Forward) {
      expect_fault(schedule, 2, BackwardInput, 0, 3, "before its forward");
    } else if (work == BackwardInput) {
      expect_fault(schedule, 2, BackwardWeight, 0, 3, "before the gradient of the input");
    } else {
      expect_fault(schedule, 2, BackwardWeight, 0, 3, "is missing");
    }
  }
  PipelineSchedule schedule = made_schedule("1f1b", 4, 6);
  std::erase_if(schedule.order[3],
                [](const auto& operation) { return operation.micro_batch == 5; });
  expect_fault(schedule, 3, Forward, 0, 5, "is missing");
}

TEST(ScheduleCheck, AnOperationTooMany) {
  for (const auto work : {Forward, BackwardInput, BackwardWeight}) {
    PipelineSchedule schedule = made_schedule("zb-v", 3, 6);
    schedule.order[1].push_back({work, 1, 4, false});
    expect_fault(schedule, 1, work, 1, 4, "runs twice");
  }
  PipelineSchedule schedule = made_schedule("zb-h1", 3, 6);
  schedule.order[1].push_back({Backward, 0, 4, false});
  expect_fault(schedule, 1, Backward, 0, 4, "runs twice");
  schedule.order[1].back() = {Forward, 0, 6, false};
  expect_fault(schedule, 1, Forward, 0, 6, "there are 6 micro-batches");
  schedule.order[1].back() = {Forward, 1, 0, false};
  expect_fault(schedule, 1, Forward, 1, 0, "1 chunks");
  schedule.order[1].back() = {Forward, -1, 0, false};
  expect_fault(schedule, 1, Forward, -1, 0, "1 chunks");
}

TEST(ScheduleCheck, WeightsBeforeInputs) {
  PipelineSchedule schedule = made_schedule("zb-h2", 4, 8);
  auto& order = schedule.order[1];
  std::swap(order[find(order, BackwardInput, 0, 5)], order[find(order, BackwardWeight, 0, 5)]);
  expect_fault(schedule, 1, BackwardWeight, 0, 5, "before the gradient of the input");
}

TEST(ScheduleCheck, Recomputation) {
  PipelineSchedule schedule = made_schedule("varuna", 4, 8);
  auto& order = schedule.order[0];
  const std::size_t recompute = find(order, Recompute, 0, 3);
  std::swap(order[recompute], order[recompute + 1]);
  expect_fault(schedule, 0, Backward, 0, 3, "before its recompute");

  schedule = made_schedule("varuna", 4, 8);
  schedule.recomputed.clear();
  expect_fault(schedule, 0, Recompute, 0, 0, "keeps its activations");

  schedule = made_schedule("varuna", 4, 8);
  schedule.order[1].push_back({Recompute, 0, 2, false});
  expect_fault(schedule, 1, Recompute, 0, 2, "runs twice");
  schedule.order[1].pop_back();
  schedule.order[1].insert(schedule.order[1].begin(), {Recompute, 0, 2, false});
  expect_fault(schedule, 1, Recompute, 0, 2, "before its forward");
}

// Device 1 takes the micro-batches in another order than device 0 hands them down and device 2
// hands their gradients up.
TEST(ScheduleCheck, ADeadlockNamesWhoWaitsForWhom) {
  PipelineSchedule schedule = made_schedule("1f1b", 2, 4);
  // Device 0: F0 F1 B0 …; device 1 wants micro-batch 3 first, which device 0 begins after B1.
  auto& order = schedule.order[1];
  std::rotate(order.begin(), order.begin() + 6, order.end());
  expect_fault(schedule, 0, Backward, 0, 0,
               "waits for ever for the backward of chunk 0 on device 1, which waits at its forward "
               "of chunk 0, micro-batch 3");
}

// The order of interleaved 1F1B with a short last group, P = 4, M = 5, v = 3: what the last device
// wants first of the short group, the first one gives only after a backward of the last.
TEST(ScheduleCheck, TheShortGroupOfInterleaving) {
  constexpr int devices = 4, micro_batches = 5, chunks = 3;
  PipelineSchedule schedule;
  schedule.devices = devices;
  schedule.micro_batches = micro_batches;
  schedule.chunks = chunks;
  std::vector<std::pair<int, int>> table;
  for (int first = 0; first < micro_batches; first += devices) {
    for (int c = 0; c < chunks; ++c) {
      for (int m = first; m < std::min(first + devices, micro_batches); ++m)
        table.push_back({c, m});
    }
  }
  for (int r = 0; r < devices; ++r) {
    auto& order = schedule.order.emplace_back();
    const std::size_t warm =
        static_cast<std::size_t>(2 * (devices - 1 - r) + (chunks - 1) * devices);
    for (std::size_t k = 0; k < table.size() + warm; ++k) {
      if (k < table.size()) order.push_back({Forward, table[k].first, table[k].second, false});
      if (k >= warm)
        order.push_back(
            {Backward, chunks - 1 - table[k - warm].first, table[k - warm].second, false});
    }
  }
  const auto fault = find_fault(schedule);
  ASSERT_TRUE(fault.has_value());
  EXPECT_NE(fault->reason.find("waits for ever"), std::string::npos) << describe(*fault);
}

TEST(ScheduleCheck, Directions) {
  PipelineSchedule schedule = made_schedule("chimera", 4, 4);
  for (auto& operation : schedule.order[2]) {
    if (operation.micro_batch == 1) operation.chunk = 1;
  }
  // On device 2 micro-batch 1 goes up, elsewhere down.
  expect_fault(schedule, 2, Forward, 0, 1, "is missing");
  schedule.order[2].push_back({Forward, 0, 1, false});
  schedule.order[2].push_back({Backward, 0, 1, false});
  expect_fault(schedule, 2, Forward, 1, 1, "other direction");
}

TEST(ScheduleCheck, Overlaps) {
  const PipelineSchedule good = made_schedule("dualpipev", 3, 8);
  PipelineSchedule schedule = good;
  schedule.order[0].back().overlaps_next = true;
  expect_fault(schedule, 0, BackwardWeight, schedule.order[0].back().chunk,
               schedule.order[0].back().micro_batch, "there is none");
  schedule = good;
  schedule.order[1][0].overlaps_next = true;
  expect_fault(schedule, 1, Forward, 0, 0, "only a forward and a backward");
  schedule = good;
  const auto first = std::find_if(schedule.order[1].begin(), schedule.order[1].end(),
                                  [](const auto& operation) { return operation.overlaps_next; });
  (first + 1)->overlaps_next = true;
  const auto fault = find_fault(schedule);
  ASSERT_TRUE(fault.has_value());
  EXPECT_NE(fault->reason.find("overlaps the next again"), std::string::npos);
  // The last device's backward of a micro-batch needs the forward beside it.
  PipelineSchedule last = made_schedule("1f1b", 2, 2);
  last.order[1][0].overlaps_next = true;
  expect_fault(last, 1, Forward, 0, 0, "needs it");
  // Through the other device: each of the pair waits for what follows from its partner.
  PipelineSchedule circle = made_schedule("interleaved", 2, 2);
  circle.order[0] = {{Forward, 0, 0, false},  {Forward, 0, 1, false},  {Forward, 1, 0, false},
                     {Forward, 1, 1, true},   {Backward, 1, 0, false}, {Backward, 1, 1, false},
                     {Backward, 0, 0, false}, {Backward, 0, 1, false}};
  circle.order[1] = {{Forward, 0, 0, false},  {Forward, 0, 1, false},  {Forward, 1, 0, false},
                     {Forward, 1, 1, false},  {Backward, 1, 0, false}, {Backward, 1, 1, false},
                     {Backward, 0, 0, false}, {Backward, 0, 1, false}};
  const auto waits = find_fault(circle);
  ASSERT_TRUE(waits.has_value());
  EXPECT_EQ(waits->device, 0);
  circle.order[0][3].overlaps_next = false;
  EXPECT_EQ(find_fault(circle), std::nullopt);
}

TEST(ScheduleCheck, Shape) {
  const auto reason = [](const PipelineSchedule& schedule) {
    const auto fault = find_fault(schedule);
    return fault ? describe(*fault) : std::string();
  };
  PipelineSchedule schedule = made_schedule("1f1b", 2, 2);
  schedule.order.pop_back();
  EXPECT_EQ(reason(schedule), "there are 1 lists of operations for 2 devices");
  schedule = made_schedule("1f1b", 2, 2);
  schedule.placement = ChunkPlacement::V;
  EXPECT_EQ(reason(schedule), "placement v has two chunks a device, not 1");
  schedule = made_schedule("1f1b", 2, 2);
  schedule.micro_batches = 0;
  EXPECT_EQ(reason(schedule), "devices, micro-batches and chunks are at least 1");
  schedule.micro_batches = 1 << 30;
  EXPECT_NE(reason(schedule).find("is more than"), std::string::npos);
  schedule = made_schedule("varuna", 2, 2);
  schedule.recomputed.push_back({2, 0});
  EXPECT_EQ(reason(schedule), "there is no chunk 0 on a device 2 to recompute");
}

// Any one change: moved, swapped, lost, doubled or altered. Most do harm, some do not.
void damage(PipelineSchedule& schedule, std::mt19937& random) {
  auto& order = schedule.order[random() % schedule.order.size()];
  const auto any = [&] { return static_cast<std::ptrdiff_t>(random() % order.size()); };
  const auto at = [&](std::ptrdiff_t i) -> PipelineOperation& {
    return order[static_cast<std::size_t>(i)];
  };
  switch (random() % 6) {
    case 0:
      std::swap(at(any()), at(any()));
      break;
    case 1: {
      const std::ptrdiff_t i = any();
      if (static_cast<std::size_t>(i + 1) < order.size()) std::swap(at(i), at(i + 1));
      break;
    }
    case 2:
      order.erase(order.begin() + any());
      break;
    case 3:
      order.insert(order.begin() + any(), at(any()));
      break;
    case 4:
      at(any()).micro_batch = static_cast<int>(random()) & 7;
      break;
    default: {
      const std::ptrdiff_t i = any();
      const std::ptrdiff_t k = any();
      std::rotate(order.begin() + std::min(i, k), order.begin() + std::max(i, k), order.end());
    }
  }
  for (auto& list : schedule.order) {
    for (auto& operation : list) operation.overlaps_next = false;
  }
}

TEST(ScheduleCheck, AgreesWithASlowReferenceOnDamage) {
  std::mt19937 random(11);
  const auto& kinds = pipeline_schedule_kinds();
  int accepted = 0;
  int rejected = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::string name(kinds[random() % kinds.size()].name);
    if (name == "file") continue;
    PipelineSchedule schedule = made_schedule(name, 2 * (1 + static_cast<int>(random() % 3)), 8);
    damage(schedule, random);
    const PipelineCosts costs = even_costs(schedule, {1, 1, 1});
    const bool legal = slow_starts(schedule, costs).has_value();
    const auto fault = find_fault(schedule);
    ASSERT_EQ(!fault.has_value(), legal) << schedule.name << (fault ? describe(*fault) : "");
    ++(legal ? accepted : rejected);
  }
  EXPECT_GT(accepted, 400);
  EXPECT_GT(rejected, 1000);
}

}  // namespace
}  // namespace garonne::plan::test
