// The orders of each schedule by hand, what schedules refuse, and files.
#include "plan/pipeline/schedule.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <functional>

#include "base/error.hpp"
#include "base/file.hpp"
#include "plan/pipeline/pipeline_stage.hpp"
#include "plan/pipeline/schedule_json.hpp"
#include "plan/pipeline/schedule_registry.hpp"
#include "plan/pipeline/slow_pipeline.hpp"

namespace garonne::plan::test {
namespace {

// One device as "F0 b0 w0", with a stroke for chunk 1 and "&" before what overlaps.
std::string shown(const std::vector<PipelineOperation>& order) {
  std::string text;
  bool overlaps = false;
  for (const PipelineOperation& operation : order) {
    const char* letters = "FBbwR";
    text += text.empty() ? "" : overlaps ? "&" : " ";
    text += fmt::format("{}{}{}", letters[static_cast<int>(operation.work)],
                        operation.chunk == 1 ? "'" : "", operation.micro_batch);
    overlaps = operation.overlaps_next;
  }
  return text;
}

struct OrderCase {
  std::string schedule;
  int stages;
  int micro_batches;
  std::vector<std::string> order;
};

class Order : public testing::TestWithParam<OrderCase> {};

TEST_P(Order, ByHand) {
  const OrderCase& given = GetParam();
  const PipelineSchedule schedule =
      make_pipeline_schedule(given.schedule, request(given.stages, given.micro_batches));
  std::vector<std::string> orders;
  for (const auto& order : schedule.order) orders.push_back(shown(order));
  EXPECT_EQ(orders, given.order) << given.schedule;
}

INSTANTIATE_TEST_SUITE_P(
    Schedules, Order,
    testing::Values(
        OrderCase{"gpipe", 2, 2, {"F0 F1 B0 B1", "F0 F1 B0 B1"}},
        OrderCase{
            "1f1b",
            3,
            4,
            {"F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"}},
        OrderCase{"1f1b", 3, 1, {"F0 B0", "F0 B0", "F0 B0"}},
        OrderCase{
            "interleaved", 2, 2, {"F0 F1 F'0 F'1 B'0 B'1 B0 B1", "F0 F1 F'0 B'0 F'1 B'1 B0 B1"}},
        OrderCase{"varuna", 2, 2, {"F0 F1 R0 B0 R1 B1", "F0 B0 F1 B1"}},
        OrderCase{"chimera", 2, 3, {"F0 F'1 B'1 B0 F2 B2", "F'1 F0 B0 B'1 F2 B2"}},
        OrderCase{"zb-h1", 2, 3, {"F0 F1 b0 w0 F2 b1 w1 b2 w2", "F0 b0 F1 b1 w0 F2 b2 w1 w2"}},
        OrderCase{"zb-h2",
                  2,
                  4,
                  {"F0 F1 F2 b0 w0 F3 b1 w1 b2 w2 b3 w3", "F0 b0 F1 b1 F2 b2 w0 F3 b3 w1 w2 w3"}},
        OrderCase{"zb-v",
                  2,
                  3,
                  {"F0 F1 F2 F'0 b'0 w'0 F'1 b'1 w'1 b0 w0 F'2 b'2 w'2 b1 w1 b2 w2",
                   "F0 F'0 F1 F'1 b'0 w'0 F2 b0 w0 F'2 b'1 w'1 b1 b'2 b2 w1 w'2 w2"}},
        OrderCase{"dualpipev", 1, 2, {"F0 F'0 F1 B'0 F'1&B0 B'1 b1 w1"}},
        // Below 2P: the last two micro-batches of the schedule for four are taken out, and no pair
        // is left.
        OrderCase{"dualpipev",
                  2,
                  2,
                  {"F0 F1 F'0 b'0 w'0 F'1 B'1 B0 B1", "F0 F'0 F1 F'1 B'0 B0 B'1 B1"}}));

// The error of a request; empty where there is none.
std::string refusal(const std::string& name, const PipelineRequest& wanted) {
  try {
    make_pipeline_schedule(name, wanted);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

void expect_words(const std::string& message, const std::vector<std::string>& words) {
  for (const std::string& word : words) {
    EXPECT_NE(message.find(word), std::string::npos) << "'" << word << "' in '" << message << "'";
  }
}

TEST(PipelineRequests, WhatCannotBeIsRefusedWithWhatCan) {
  expect_words(refusal("2f2b", request(4, 8)), {"--schedule", "2f2b", "1f1b", "dualpipev", "file"});
  expect_words(refusal("chimera", request(5, 8)), {"--stages", "4 and 6"});
  expect_words(refusal("chimera", request(1, 8)), {"--stages", "smallest is 2"});
  expect_words(refusal("1f1b", request(0, 8)), {"--stages", "from 1 to 4096"});
  expect_words(refusal("1f1b", request(4, 0)), {"--micro-batches", "from 1 to 65536"});
  expect_words(refusal("1f1b", request(4096, 65536)), {"--micro-batches", "1024"});
  expect_words(refusal("gpipe", {}), {"--stages", "is needed"});

  PipelineRequest chunks = request(4, 8);
  chunks.chunks = 3;
  expect_words(refusal("zb-v", chunks), {"--chunks", "3", "has 2 a device"});
  expect_words(refusal("dualpipev", chunks), {"--chunks", "has 2 a device"});
  expect_words(refusal("1f1b", chunks), {"--chunks", "has 1 a device"});
  EXPECT_EQ(refusal("interleaved", chunks), "");
  chunks.chunks = 0;
  expect_words(refusal("interleaved", chunks), {"--chunks", "from 1 to 256"});
  chunks.chunks = 2;
  EXPECT_EQ(refusal("zb-v", chunks), "");

  PipelineRequest groups = request(4, 8);
  groups.group_size = 3;
  expect_words(refusal("interleaved", groups), {"--group-size", "3", "at least 4"});
  groups.group_size = 8;
  EXPECT_EQ(refusal("interleaved", groups), "");
  expect_words(refusal("zb-h1", groups), {"--group-size", "no groups"});

  PipelineRequest file = request(4, 8);
  file.file = "own.json";
  expect_words(refusal("1f1b", file), {"--file", "only schedule file"});
  expect_words(refusal("file", file), {"--file", "own.json"});
  expect_words(refusal("file", request(4, 8)), {"--file", "is needed"});
}

class ScheduleFile : public testing::Test {
 protected:
  ScheduleFile()
      : path_(std::filesystem::temp_directory_path() /
              fmt::format("garonne-pipeline-{}.json",
                          testing::UnitTest::GetInstance()->random_seed() + ::getpid())) {}
  ~ScheduleFile() override { std::filesystem::remove(path_); }

  PipelineRequest written(const std::string& text) const {
    write_file_durably(path_.string(), text);
    PipelineRequest result;
    result.file = path_.string();
    return result;
  }

  std::filesystem::path path_;
};

TEST_F(ScheduleFile, KeepsEverySchedule) {
  for (const auto& kind : pipeline_schedule_kinds()) {
    if (kind.name == "file") continue;
    const PipelineSchedule schedule = make_pipeline_schedule(std::string(kind.name), request(4, 9));
    EXPECT_EQ(make_pipeline_schedule("file", written(to_json(schedule).dump())), schedule);
  }
}

TEST_F(ScheduleFile, DefaultsAndSizes) {
  PipelineRequest wanted = written(
      R"({"format": "garonne.pipeline-schedule", "version": 1, "stages": 1, "micro_batches": 1,
          "order": [[["forward", 0, 0], ["backward", 0, 0]]]})");
  const PipelineSchedule schedule = make_pipeline_schedule("file", wanted);
  EXPECT_EQ(schedule.chunks, 1);
  EXPECT_EQ(schedule.placement, ChunkPlacement::Looped);
  wanted.stages = 1;
  wanted.micro_batches = 1;
  EXPECT_EQ(refusal("file", wanted), "");
  wanted.micro_batches = 2;
  expect_words(refusal("file", wanted), {"--micro-batches", "the file has 1"});
}

// What is wrong with a file is named by path and key.
TEST_F(ScheduleFile, MalformedOnesAreRefused) {
  const auto good = to_json(make_pipeline_schedule("varuna", request(2, 2)));
  const auto message_of = [&](const std::function<void(nlohmann::ordered_json&)>& spoil) {
    auto bad = good;
    spoil(bad);
    return refusal("file", written(bad.dump()));
  };
  EXPECT_EQ(message_of([](auto&) {}), "");
  expect_words(message_of([](auto& j) { j.erase("order"); }), {path_.string(), "order", "missing"});
  expect_words(message_of([](auto& j) { j["color"] = 1; }), {"color", "no key"});
  expect_words(message_of([](auto& j) { j["format"] = "garonne.plan"; }), {"format"});
  expect_words(message_of([](auto& j) { j["version"] = 2; }), {"version", "version 1"});
  expect_words(message_of([](auto& j) { j["stages"] = "two"; }), {"stages", "no integer"});
  expect_words(message_of([](auto& j) { j["stages"] = 3; }), {"order", "list of 2, not 3"});
  expect_words(message_of([](auto& j) { j["micro_batches"] = 0; }), {"micro_batches"});
  expect_words(message_of([](auto& j) { j["micro_batches"] = 1e300; }), {"micro_batches"});
  expect_words(message_of([](auto& j) { j["chunks"] = 18446744073709551615ull; }), {"chunks"});
  expect_words(message_of([](auto& j) { j["placement"] = "w"; }), {"placement", "bidirectional"});
  expect_words(message_of([](auto& j) { j["placement"] = "v"; }), {"two chunks"});
  expect_words(message_of([](auto& j) { j["name"] = 3; }), {"name", "no text"});
  expect_words(message_of([](auto& j) { j["recompute"] = {{5, 0}}; }), {"recompute[0]"});
  expect_words(message_of([](auto& j) {
                 j["overlaps"] = {{99}, nlohmann::json::array()};
               }),
               {"overlaps[0]", "99"});
  expect_words(message_of([](auto& j) { j["order"][1][2][0] = "sideways"; }),
               {"order[1][2]", "sideways", "backward-input"});
  expect_words(message_of([](auto& j) { j["order"][0][1] = {"forward", 0}; }), {"order[0][1]"});
  expect_words(message_of([](auto& j) { j["order"][0][1][2] = 7; }), {"order[0][1]", "7"});
  expect_words(
      message_of([](auto& j) { j["order"][1].erase(2); }),
      {"device 1, operation 2 (backward of chunk 0, micro-batch 1)", "before its forward"});
  expect_words(refusal("file", written("{")), {path_.string(), "no JSON"});
  expect_words(refusal("file", written("[]")), {"no object"});
}

// What a stage runs again is its plan's to say.
TEST(PipelineSchedule, ThatRunsForwardsAgainHasNoPrograms) {
  const PipelineSchedule schedule = make_pipeline_schedule("varuna", request(4, 8));
  for (int stage = 0; stage < schedule.devices; ++stage) {
    try {
      make_pipeline_stage(ModelGraph(), schedule, stage);
      FAIL() << stage;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key(), "grid.schedule");
      expect_words(error.what(), {"varuna", "memory.plan", "1f1b"});
    }
  }
}

}  // namespace
}  // namespace garonne::plan::test
