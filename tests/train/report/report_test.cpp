// The report: bytes by kind beside replay, and texts that must stay texts.
#include "train/report/report.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <string>

#include "base/error.hpp"
#include "train/plans/memory_sweep.hpp"
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
    const auto during = bytes_during(choice.program);
    ASSERT_EQ(during.size(), choice.prediction.during_bytes.size());
    for (std::size_t i = 0; i < during.size(); ++i) {
      EXPECT_EQ(std::accumulate(during[i].begin(), during[i].end(), std::int64_t{0}),
                choice.prediction.during_bytes[i]);
    }
  }
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
