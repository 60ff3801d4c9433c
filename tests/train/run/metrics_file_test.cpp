// metrics.jsonl: what stays of it when a run goes on, and what is read.
#include "train/run/metrics_file.hpp"

#include <nlohmann/json.hpp>
#include <random>

#include "train/scratch.hpp"

namespace garonne::train::test {
namespace {

namespace fs = std::filesystem;

void unexpected(const std::string& warning) {
  ADD_FAILURE() << "warned: " << warning;
}

std::vector<nlohmann::json> rows_of(const std::string& path) {
  std::vector<nlohmann::json> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

std::vector<std::int64_t> steps_of(const std::string& path) {
  std::vector<std::int64_t> steps;
  for (const auto& row : rows_of(path)) steps.push_back(row["step"]);
  return steps;
}

StepMetrics row(std::int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 1.0 / static_cast<double>(step);
  metrics.gradient_norm = 0.1;
  metrics.data_seconds = 0.25;
  metrics.peak_bytes = 1000 + step;
  if (step % 5 == 0) metrics.validation_loss = 2.5;
  return metrics;
}

std::vector<std::string> lines_of_steps(const Scratch& scratch, std::int64_t steps) {
  MetricsFile metrics(scratch.path(), 0, unexpected);
  for (std::int64_t step = 1; step <= steps; ++step) metrics.append(row(step));
  std::vector<std::string> lines;
  std::ifstream file(scratch.path("metrics.jsonl"));
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const auto& line : lines) text += line + "\n";
  return text;
}

TEST(Metrics, CutAfterTheCheckpointThenContinued) {
  const Scratch scratch;
  const std::string path = scratch.path("metrics.jsonl");
  {
    MetricsFile metrics(scratch.path(), 0, unexpected);
    for (std::int64_t step = 1; step <= 10; ++step) metrics.append(row(step));
    EXPECT_EQ(rows_of(path).size(), 10U) << "each row is there as soon as it is appended";
  }
  // Killed while writing a row.
  std::ofstream(path, std::ios::app) << "{\"step\":11,\"lo";
  {
    MetricsFile metrics(scratch.path(), 6, unexpected);
    EXPECT_EQ(rows_of(path).size(), 6U);
    for (std::int64_t step = 7; step <= 8; ++step) metrics.append(row(step));
  }
  const auto rows = rows_of(path);
  ASSERT_EQ(rows.size(), 8U);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto step = static_cast<std::int64_t>(i) + 1;
    EXPECT_EQ(rows[i]["step"], step);
    EXPECT_EQ(rows[i]["loss"], 1.0 / static_cast<double>(step)) << "no digit is lost";
    EXPECT_EQ(rows[i]["peak_bytes"], 1000 + step);
    EXPECT_EQ(rows[i].contains("validation_loss"), step % 5 == 0);
  }
  EXPECT_FALSE(fs::exists(path + ".damaged"));
}

TEST(Metrics, RowsWithoutACheckpointGoWithAWord) {
  const Scratch scratch;
  lines_of_steps(scratch, 4);
  std::vector<std::string> warnings;
  MetricsFile(scratch.path(), 0, [&](const std::string& text) { warnings.push_back(text); });
  EXPECT_TRUE(rows_of(scratch.path("metrics.jsonl")).empty());
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("step 4"), std::string::npos) << warnings[0];
}

TEST(Metrics, ADamagedLineIsPutAsideAndTheOthersStay) {
  for (const std::string& damage :
       {std::string("{\"step\":3,"), std::string(40, '\0'), std::string("3"), std::string("[]"),
        std::string(), std::string("{\"step\":\"x\"}"), std::string("{\"step\":3}"),
        std::string("{\"step\":-3}"), std::string(5000, '['), std::string("\xff\xfe")}) {
    const Scratch scratch;
    const std::string path = scratch.path("metrics.jsonl");
    std::vector<std::string> lines = lines_of_steps(scratch, 8);
    const std::string whole = joined({lines.begin(), lines.begin() + 6});
    lines[2] = damage;
    write_bytes(path, joined(lines));
    std::vector<std::string> warnings;
    MetricsFile(scratch.path(), 6, [&](const std::string& text) { warnings.push_back(text); });
    EXPECT_EQ(steps_of(path), (std::vector<std::int64_t>{1, 2, 4, 5, 6})) << damage;
    ASSERT_EQ(warnings.size(), 1U) << damage;
    EXPECT_NE(warnings[0].find("line 3 is damaged"), std::string::npos) << warnings[0];
    EXPECT_EQ(read_bytes(path + ".damaged"), damage + "\n");
    EXPECT_EQ(read_metrics(scratch.path()).size(), 5U);
    // Nothing is damaged any more, and why the row is not there has been said.
    warnings.clear();
    MetricsFile(scratch.path(), 6, [&](const std::string& text) { warnings.push_back(text); });
    EXPECT_TRUE(warnings.empty()) << warnings[0];
    EXPECT_EQ(read_bytes(path + ".damaged"), damage + "\n");
    // Another one goes without having been damaged.
    write_bytes(path, joined({lines[0], lines[3], lines[4], lines[5]}));
    MetricsFile(scratch.path(), 6, [&](const std::string& text) { warnings.push_back(text); });
    ASSERT_EQ(warnings.size(), 1U) << damage;
    EXPECT_NE(warnings[0].find("lacks 1 row of"), std::string::npos) << warnings[0];
  }
}

// Whatever is damaged, every whole line up to the checkpoint stays as it is.
TEST(Metrics, RandomDamageTakesNoWholeLine) {
  std::mt19937 random(7);
  for (int round = 0; round < 100; ++round) {
    const Scratch scratch;
    const std::string path = scratch.path("metrics.jsonl");
    std::vector<std::string> lines = lines_of_steps(scratch, 12);
    std::vector<std::string> expected;
    std::string aside;
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (random() % 4 == 0) {
        lines[i].resize(random() % lines[i].size());
        aside += lines[i] + "\n";
      } else if (i < 9) {
        expected.push_back(lines[i]);
      }
    }
    write_bytes(path, joined(lines));
    MetricsFile(scratch.path(), 9, [](const std::string&) {});
    EXPECT_EQ(read_bytes(path), joined(expected));
    EXPECT_EQ(fs::exists(path + ".damaged") ? read_bytes(path + ".damaged") : "", aside);
  }
}

TEST(Metrics, OfSeveralRowsOfAStepTheLastStays) {
  const Scratch scratch;
  const std::string path = scratch.path("metrics.jsonl");
  std::vector<std::string> lines = lines_of_steps(scratch, 4);
  auto again = nlohmann::json::parse(lines[1]);
  again["loss"] = 7.0;
  lines.push_back(again.dump());
  std::swap(lines[0], lines[3]);
  write_bytes(path, joined(lines));
  std::vector<std::string> warnings;
  MetricsFile(scratch.path(), 4, [&](const std::string& text) { warnings.push_back(text); });
  EXPECT_EQ(steps_of(path), (std::vector<std::int64_t>{1, 2, 3, 4})) << "in order";
  EXPECT_EQ(rows_of(path)[1]["loss"], 7.0);
  EXPECT_EQ(warnings.size(), 1U);
}

TEST(Metrics, SlowRanksAreInTheRowInWhichTheyWereNamed) {
  const Scratch scratch;
  {
    MetricsFile metrics(scratch.path(), 0, unexpected);
    metrics.append(row(1));
    StepMetrics named = row(2);
    named.slow_ranks = {{3, "[rank 3/4 node07]", 1.5}, {1, "[rank 1/4 node06]", 2}};
    metrics.append(named);
  }
  const auto rows = read_metrics(scratch.path());
  EXPECT_TRUE(rows.at(0).slow_ranks.empty());
  ASSERT_EQ(rows.at(1).slow_ranks.size(), 2U);
  EXPECT_EQ(rows[1].slow_ranks[0].rank, 3);
  EXPECT_EQ(rows[1].slow_ranks[0].place, "[rank 3/4 node07]");
  EXPECT_EQ(rows[1].slow_ranks[1].times, 2);
}

TEST(Metrics, ALossThatIsNotFiniteIsNull) {
  const Scratch scratch;
  {
    MetricsFile metrics(scratch.path(), 0, unexpected);
    StepMetrics poisoned = row(1);
    poisoned.validation_loss = std::numeric_limits<double>::quiet_NaN();
    metrics.append(poisoned);
  }
  MetricsFile(scratch.path(), 1, unexpected);
  const auto rows = read_metrics(scratch.path());
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_FALSE(rows[0].validation_loss.has_value());
  EXPECT_EQ(rows[0].data_seconds, 0.25);
}

TEST(Metrics, RowsThatAreNotThereAreTold) {
  const Scratch scratch;
  lines_of_steps(scratch, 4);
  std::vector<std::string> told;
  const auto tell = [&](const std::string& text) { told.push_back(text); };
  MetricsFile(scratch.path(), 4, tell);
  EXPECT_TRUE(told.empty());
  MetricsFile(scratch.path(), 7, tell);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("lacks 3 rows of the steps up to 7"), std::string::npos) << told[0];
  EXPECT_EQ(steps_of(scratch.path("metrics.jsonl")).size(), 4U);
}

TEST(Metrics, AFileThatIsRemovedIsBegunAnew) {
  const Scratch scratch;
  const std::string path = scratch.path("metrics.jsonl");
  std::vector<std::string> told;
  MetricsFile metrics(
      scratch.path(), 0, [&](const std::string& text) { told.push_back(text); },
      std::chrono::milliseconds(0));
  metrics.append(row(1));
  metrics.append(row(2));
  EXPECT_TRUE(told.empty());
  fs::remove(path);
  metrics.append(row(3));
  metrics.append(row(4));
  EXPECT_EQ(steps_of(path), (std::vector<std::int64_t>{3, 4}));
  ASSERT_EQ(told.size(), 1U);
  EXPECT_NE(told[0].find("the rows before step 3 are lost"), std::string::npos) << told[0];
}

TEST(Metrics, ALaterRowOfTheSameStepTakesThePlaceOfTheFirst) {
  const Scratch scratch;
  const std::string path = scratch.path("metrics.jsonl");
  {
    MetricsFile metrics(scratch.path(), 0, unexpected);
    for (const std::int64_t step : {1, 2, 3}) metrics.append(row(step));
    StepMetrics again = row(3);
    again.validation_loss = 0.5;
    metrics.append(again);
    EXPECT_EQ(read_metrics(scratch.path()).back().validation_loss, 0.5);
    metrics.append(row(3));
    metrics.append(row(4));
  }
  EXPECT_EQ(steps_of(path), (std::vector<std::int64_t>{1, 2, 3, 4}));
  EXPECT_FALSE(read_metrics(scratch.path())[2].validation_loss.has_value());
  // Of the first step of a start that goes on.
  MetricsFile metrics(scratch.path(), 2, unexpected);
  metrics.append(row(3));
  metrics.append(row(3));
  EXPECT_EQ(steps_of(path), (std::vector<std::int64_t>{1, 2, 3}));
}

TEST(Metrics, LinesOfAnyLengthAreReadInPieces) {
  const Scratch scratch;
  const std::string path = scratch.path("metrics.jsonl");
  const std::vector<std::string> lines = lines_of_steps(scratch, 3);
  // Rows whose ends lie anywhere in a piece of a mebibyte, by a key that nobody asks for.
  std::vector<std::string> long_lines;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string filling((std::size_t{1} << 19) * (i + 1) - 7 * i, 'x');
    long_lines.push_back(lines[i].substr(0, lines[i].size() - 1) + ",\"filling\":\"" + filling +
                         "\"}");
  }
  std::ofstream(path) << joined(long_lines);
  const auto changed = fs::last_write_time(path);
  { const MetricsFile metrics(scratch.path(), 3, unexpected); }
  EXPECT_EQ(fs::last_write_time(path), changed) << "a file that is as it should be stays";
  EXPECT_EQ(read_metrics(scratch.path()).size(), 3U);
  { const MetricsFile metrics(scratch.path(), 2, unexpected); }
  EXPECT_EQ(steps_of(path), (std::vector<std::int64_t>{1, 2}));
}

TEST(Metrics, AFileThatWasLongerThanWhatIsReadAsAWhole) {
  const Scratch scratch;
  const std::string path = scratch.path("metrics.jsonl");
  const std::vector<std::string> lines = lines_of_steps(scratch, 2);
  // A hole of 2 GiB, which takes no space: a line of zeros that ends nowhere is told by its path.
  fs::resize_file(path, std::uintmax_t{2} << 30);
  expect_io_error(path, "a line without an end",
                  [&] { const MetricsFile metrics(scratch.path(), 2, unexpected); });
}

TEST(Metrics, SecondsBetweenStepsAreReadAsTheyWereWritten) {
  const Scratch scratch;
  {
    MetricsFile metrics(scratch.path(), 0, unexpected);
    StepMetrics second = row(2);
    second.between_seconds = 0.125;
    metrics.append(row(1));
    metrics.append(second);
  }
  const auto rows = read_metrics(scratch.path());
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0].between_seconds, 0);
  EXPECT_EQ(rows[1].between_seconds, 0.125);
}

}  // namespace
}  // namespace garonne::train::test
