#include "train/plans/grid_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "nn/gpt/gpt.hpp"
#include "train/mebibyte.hpp"

namespace garonne::train {
namespace {

// Hosts of `ranks_on_host` ranks; a rank holds what its stage does.
std::vector<GridRow> rows_of(const Grid& grid, int ranks_on_host) {
  std::vector<GridRow> rows;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const int stage = grid.coordinates_of(rank).pipeline;
    GridRow row{"node" + std::to_string(rank / ranks_on_host), rank % ranks_on_host, "cpu", {}};
    row.memory.parameters = (10 + stage) * mebibyte;
    row.memory.activations = 5 * mebibyte + mebibyte / 2;
    row.memory.peak = row.memory.parameters + row.memory.activations;
    row.memory.free = 100 * mebibyte - row.memory.peak;
    rows.push_back(row);
  }
  return rows;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  for (std::size_t begin = line.find_first_not_of(' '); begin != std::string::npos;) {
    const std::size_t end = line.find(' ', begin);
    words.push_back(line.substr(begin, end - begin));
    begin = line.find_first_not_of(' ', end);
  }
  return words;
}

TEST(GridTable, SaysOfEveryRankWhereItIsAndWhatItHolds) {
  const Grid grid({2, 2, 2});
  const auto lines = lines_of(format_grid_table(grid, rows_of(grid, 4), 100 * mebibyte));
  ASSERT_EQ(lines.size(), 1u + 3u + 1u + 8u + 2u + 2u);
  EXPECT_EQ(lines[0], "ranks     8 on 2 hosts");
  EXPECT_EQ(lines[1],
            "groups    data      4 groups of 2, each on one host: {0 2} {1 3} {4 6} {5 7}");
  EXPECT_EQ(lines[2], "          pipeline  4 groups of 2, across hosts: {0 4} {1 5} {2 6} {3 7}");
  EXPECT_EQ(lines[3],
            "          tensor    4 groups of 2, each on one host: {0 1} {2 3} {4 5} {6 7}");
  EXPECT_EQ(words_of(lines[4]), (std::vector<std::string>{"rank", "data", "pipeline", "tensor",
                                                          "host", "local", "device"}));
  EXPECT_EQ(words_of(lines[5 + 7]),
            (std::vector<std::string>{"7", "1", "1", "1", "node1", "3", "cpu"}));
  EXPECT_EQ(words_of(lines[14]),
            (std::vector<std::string>{"ranks", "peak", "parameters", "gradients", "optimizer",
                                      "activations", "transients", "communication", "free"}));
  EXPECT_EQ(words_of(lines[15])[0], "0-3");
  EXPECT_EQ(words_of(lines[16]), (std::vector<std::string>{"4-7", "16.50", "11.00", "0.00", "0.00",
                                                           "5.50", "0.00", "0.00", "83.50"}));
  for (std::size_t i = 15; i < lines.size(); ++i) EXPECT_EQ(lines[i].size(), lines[14].size());
}

// The widest that there is: all columns, and memory as of the largest devices.
TEST(GridTable, IsAtMost120Columns) {
  const Grid grid({1, 16, 1});
  auto rows = rows_of(grid, 1);
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    GridRow& row = rows[static_cast<std::size_t>(rank)];
    row.memory.saved_copy = mebibyte;
    row.memory.parameters = rank % 2 == 0 ? 999'999 * mebibyte : 0;
    row.memory.activations = row.memory.peak = 0;
    row.memory.free = mebibyte;
  }
  const auto lines = lines_of(format_grid_table(grid, rows, mebibyte));
  EXPECT_EQ(lines.size(), 1u + 1u + 17u + 2u + 2u);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 120u) << line;
  EXPECT_TRUE(lines[21].starts_with("  0, 2, 4, 6, .. (8)")) << lines[21];
}

TEST(GridTable, OfManyRanksOnlyMemoryIsShown) {
  const Grid grid({8, 4, 2});
  const auto lines = lines_of(format_grid_table(grid, rows_of(grid, 8), 100 * mebibyte));
  ASSERT_EQ(lines.size(), 1u + 3u + 2u + 4u);
  EXPECT_EQ(lines[0], "ranks     64 on 8 hosts");
  EXPECT_EQ(lines[1],
            "groups    data      8 groups of 8, across hosts: {0 2 4 … 14} {1 3 5 … 15} "
            "{16 18 20 … 30} … {49 51 53 … 63}");
  EXPECT_EQ(lines[3],
            "          tensor    32 groups of 2, each on one host: {0 1} {2 3} {4 5} … {62 63}");
  EXPECT_EQ(words_of(lines[6]), (std::vector<std::string>{"0-15", "15.50", "10.00", "0.00", "0.00",
                                                          "5.50", "0.00", "0.00", "84.50"}));
  EXPECT_EQ(words_of(lines[9])[0], "48-63");
}

TEST(GridTable, AGroupMayLieAcrossHostsHereAndThere) {
  const Grid grid({4, 1, 1});
  auto rows = rows_of(grid, 3);
  EXPECT_NE(format_grid_table(grid, rows, mebibyte).find("1 group of 4, across hosts: {0 1 2 3}"),
            std::string::npos);
  const Grid pairs({2, 3, 1});
  EXPECT_NE(format_grid_table(pairs, rows_of(pairs, 3), mebibyte)
                .find("3 groups of 2, 1 across hosts: {0 1} {2 3} {4 5}"),
            std::string::npos);
}

TEST(WholeParameterElements, AreThoseOfTheModelOnAnyTensorRank) {
  const nn::GptSizes sizes{2, 24, 6, 8, 37, 0};
  const nn::Declaration declaration;
  const auto elements = [&](int rank, int ranks) {
    nn::GptPart part;
    part.tensor = rank;
    part.tensor_ranks = ranks;
    return whole_parameter_elements(nn::make_gpt(sizes, 2, declaration, part));
  };
  const std::int64_t whole = nn::make_gpt(sizes, 2, declaration).graph.parameter_elements();
  for (const int ranks : {1, 2, 3}) {
    for (int rank = 0; rank < ranks; ++rank) EXPECT_EQ(elements(rank, ranks), whole);
  }
}

}  // namespace
}  // namespace garonne::train
