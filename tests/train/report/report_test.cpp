// The report: bytes by kind beside replay, and texts that must stay texts.
#include "train/report/report.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "base/error.hpp"
#include "train/plans/memory_sweep.hpp"
#include "train/plans/tier_rows.hpp"
#include "train/report/report_program.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {
namespace {

RunConfig small_config() {
  RunConfig config;
  config.model.layers = 3;
  config.model.hidden = 32;
  config.model.sequence = 16;
  config.model.vocabulary = 64;
  config.train.micro_batch = 2;
  config.train.global_batch = 12;
  config.grid.data = 2;
  return config;
}

TEST(ReportProgram, BytesByKindAddUpToWhatReplaySays) {
  const auto setup = make_setup(small_config(), {64, {}, {}}, 1);
  const Choice fastest =
      choose_program(setup, std::numeric_limits<std::int64_t>::max(), "auto", Effort::All);
  const std::int64_t least = fastest.minimum_budget_bytes;
  const std::int64_t most = fastest.prediction.peak_bytes;
  ASSERT_LT(least, most);
  for (const std::int64_t budget : {least, (least + most) / 2, most}) {
    const Choice choice = choose_program(setup, budget, "auto", Effort::All);
    const auto during = bytes_during(choice.program, Tier::Device);
    ASSERT_EQ(during.size(), choice.prediction.during_bytes.size());
    for (std::size_t i = 0; i < during.size(); ++i) {
      EXPECT_EQ(std::accumulate(during[i].begin(), during[i].end(), std::int64_t{0}),
                choice.prediction.during_bytes[i]);
    }
  }
}

// A value that is copied to the host and to the disk while something is computed.
RankProgram copying_rank(bool below_device) {
  RankProgram rank;
  plan::Program& program = rank.program;
  const auto work = [&](Lane lane, const char* node, std::vector<int> reads,
                        std::vector<int> writes) {
    plan::Instruction instruction;
    instruction.operation = plan::Operation::Load;
    instruction.node = node;
    instruction.lane = lane;
    instruction.reads = std::move(reads);
    instruction.writes = std::move(writes);
    instruction.seconds = 1;
    program.instructions.push_back(instruction);
  };
  program.buffers = {{"value", plan::BufferKind::Value, 128},
                     {"copy", plan::BufferKind::Record, 192, 0, 0, Tier::Host},
                     {"file", plan::BufferKind::Record, 256, 0, 0, Tier::Disk}};
  work(Lane::Compute, "make", {}, {0});
  if (below_device) {
    work(Lane::CopyOut, "out", {0}, {1});
    work(Lane::DiskWrite, "log", {0}, {2});
    for (const int copy : {1, 2}) {
      work(Lane::Compute, "wait", {}, {});
      program.instructions.back().operation = plan::Operation::Wait;
      program.instructions.back().completes = copy;
      program.instructions.back().seconds = 0;
      program.instructions.back().frees = {copy};
    }
  }
  work(Lane::Compute, "use", {0}, {});
  program.instructions.back().frees = {0};
  program.tier(Tier::Device).budget_bytes = 1024;
  program.tier(Tier::Host).budget_bytes = 384;
  rank.prediction = plan::replay(program);
  rank.measured.resize(program.instructions.size());
  return rank;
}

TEST(ReportProgram, ShowsTiersBelowTheDeviceOnlyWhereSomethingIsThere) {
  const RankProgram rank = copying_rank(true);
  const auto shown = programs_json({rank}, {})["programs"][0];
  EXPECT_EQ(shown["below"]["host"]["budget_bytes"], 384);
  EXPECT_EQ(shown["below"]["host"]["peak_bytes"], 192);
  EXPECT_EQ(shown["below"]["host"]["peak_instruction"], 1);
  EXPECT_EQ(shown["below"]["host"]["bytes"][4], (nlohmann::json{0, 192, 192, 192, 0, 0}));
  EXPECT_EQ(shown["below"]["disk"]["bytes"][4], (nlohmann::json{0, 0, 256, 256, 256, 0}));
  EXPECT_EQ(shown["bytes"][3], (nlohmann::json{128, 128, 128, 128, 128, 128}));
  EXPECT_EQ(shown["bytes"][4], (nlohmann::json{0, 0, 0, 0, 0, 0}));
  EXPECT_FALSE(programs_json({copying_rank(false)}, {})["programs"][0].contains("below"));

  EXPECT_EQ(format_tier_rows(tier_rows(rank.program, rank.prediction)),
            "  host                       192 B        192 B   50.0 % of the host's\n"
            "  host budget                384 B        384 B  100.0 % of the host's\n"
            "  disk                       256 B        256 B\n");
  EXPECT_EQ(format_tier_rows(tier_rows(rank.program, rank.prediction, 96)),
            "  host                       192 B        192 B   50.0 % of the host's\n"
            "  saved copy                  96 B         96 B   25.0 % of the host's\n"
            "  host budget                384 B        384 B  100.0 % of the host's\n"
            "  disk                       256 B        256 B\n");
  const RankProgram plain = copying_rank(false);
  EXPECT_EQ(format_tier_rows(tier_rows(plain.program, plain.prediction)), "");
}

TEST(ReportProgram, HasEveryLaneWithTheSpansOfReplay) {
  const RankProgram rank = copying_rank(true);
  const auto shown = programs_json({rank}, {})["programs"][0];
  EXPECT_EQ(shown["lanes"], (nlohmann::json{"copy-out", "disk-write"}));
  EXPECT_EQ(shown["lane"], (nlohmann::json{-1, 0, 1, -1, -1, -1}));
  EXPECT_EQ(shown["begin_seconds"], (nlohmann::json{0.0, 1.0, 1.0, 1.0, 2.0, 2.0}));
  EXPECT_EQ(shown["end_seconds"], (nlohmann::json{1.0, 2.0, 2.0, 2.0, 2.0, 3.0}));
}

TEST(ReportPage, TextStaysText) {
  const std::string hostile = "</script><!--<script>{{style}}{{scripts}}{{data}}&\xff\"'";
  const nlohmann::ordered_json data = {{"run", hostile}};
  const std::string page = report_page(data);
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t start = page.find(begin) + begin.size();
  const std::string held = page.substr(start, page.find("</script>", start) - start);
  // A byte that is no UTF-8 becomes the mark for it; everything else comes back as it was.
  std::string expected = hostile;
  expected.replace(expected.find('\xff'), 1, "\xef\xbf\xbd");
  EXPECT_EQ(nlohmann::json::parse(held)["run"], expected);
  EXPECT_EQ(held.find('<'), std::string::npos);
  EXPECT_EQ(page.find("{{style}}"), start + held.find("{{style}}"));
}

TEST(MemorySweep, AxesAreReadOrRefused) {
  EXPECT_TRUE(parse_sweep_axes("batch").batch);
  EXPECT_FALSE(parse_sweep_axes("batch").sequence);
  EXPECT_TRUE(parse_sweep_axes("sequence,batch").sequence);
  for (const char* text : {"", ",", "batch,", ",batch", "batch,batch", "Batch", "layers"})
    EXPECT_THROW(parse_sweep_axes(text), ConfigError) << text;
}

TEST(MemorySweep, SizesAreThoseOfTheRunFileAndPowersOfTwoAround) {
  RunConfig config = small_config();
  config.model.sequence = 24;
  const MemorySweep sweep =
      memory_sweep(config, {true, true}, {64, {}, {}}, 1, {}, 1 << 20, [](int, int) {});
  EXPECT_EQ(sweep.batches, (std::vector<std::int64_t>{1, 2, 4, 8, 16}));
  EXPECT_EQ(sweep.sequences, (std::vector<std::int64_t>{4, 8, 16, 24, 32, 64, 128}));
  ASSERT_EQ(sweep.cells.size(), 35u);
  for (const auto& cell : sweep.cells) {
    RunConfig single = config;
    single.train.micro_batch = cell.batch;
    single.train.global_batch = cell.batch * 6;
    single.model.sequence = cell.sequence;
    const auto setup = make_setup(single, {64, {}, {}}, 1);
    const Choice choice = choose_program(setup, std::numeric_limits<std::int64_t>::max());
    EXPECT_EQ(cell.minimum_budget_bytes, choice.minimum_budget_bytes);
    EXPECT_EQ(cell.fastest_peak_bytes, choice.prediction.peak_bytes);
    EXPECT_FALSE(cell.measured);
    EXPECT_EQ(cell.fits, cell.minimum_budget_bytes <= 1 << 20);
  }
}

}  // namespace
}  // namespace garonne::train
