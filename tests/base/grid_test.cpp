#include "base/grid.hpp"

#include <gtest/gtest.h>

#include <set>

#include "base/collective_bytes.hpp"
#include "base/error.hpp"

namespace garonne {
namespace {

TEST(Grid, NumbersTensorThenDataThenPipeline) {
  const Grid grid(GridShape{.data = 3, .pipeline = 2, .tensor = 4});
  EXPECT_EQ(grid.ranks(), 24);
  EXPECT_EQ(grid.rank_of({.data = 0, .pipeline = 0, .tensor = 1}), 1);
  EXPECT_EQ(grid.rank_of({.data = 1, .pipeline = 0, .tensor = 0}), 4);
  EXPECT_EQ(grid.rank_of({.data = 0, .pipeline = 1, .tensor = 0}), 12);
  std::set<int> seen;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    seen.insert(grid.rank_of(grid.coordinates_of(rank)));
    EXPECT_EQ(grid.rank_of(grid.coordinates_of(rank)), rank);
  }
  EXPECT_EQ(seen.size(), 24U);
}

TEST(Grid, GroupsHoldTheRankAtItsOwnCoordinate) {
  const Grid grid(GridShape{.data = 3, .pipeline = 2, .tensor = 4});
  EXPECT_EQ(grid.group(Axis::Tensor, 5), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(grid.group(Axis::Data, 5), (std::vector<int>{1, 5, 9}));
  EXPECT_EQ(grid.group(Axis::Pipeline, 5), (std::vector<int>{5, 17}));
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const Coordinates at = grid.coordinates_of(rank);
    EXPECT_EQ(grid.group(Axis::Data, rank)[static_cast<std::size_t>(at.data)], rank);
    EXPECT_EQ(grid.group(Axis::Pipeline, rank)[static_cast<std::size_t>(at.pipeline)], rank);
    EXPECT_EQ(grid.group(Axis::Tensor, rank)[static_cast<std::size_t>(at.tensor)], rank);
  }
}

TEST(Grid, OneRankAlone) {
  EXPECT_EQ(Grid().ranks(), 1);
  EXPECT_EQ(Grid().group(Axis::Data, 0), std::vector<int>{0});
}

TEST(Grid, RefusesWhatIsNoGrid) {
  EXPECT_THROW(Grid(GridShape{.data = 0}), ConfigError);
  EXPECT_THROW(Grid(GridShape{.tensor = -1}), ConfigError);
  EXPECT_THROW(Grid(GridShape{.data = 65536, .pipeline = 65536, .tensor = 65536}), ConfigError);
  const Grid grid(GridShape{.data = 2});
  EXPECT_THROW((void)grid.coordinates_of(2), InternalError);
  EXPECT_THROW((void)grid.coordinates_of(-1), InternalError);
  EXPECT_THROW((void)grid.rank_of({.data = 2}), InternalError);
}

TEST(Grid, Prints) {
  EXPECT_EQ(to_string(GridShape{.data = 2}), "data 2 × pipeline 1 × tensor 1");
  EXPECT_EQ(to_string(Coordinates{.pipeline = 3}), "data 0, pipeline 3, tensor 0");
}

TEST(CollectiveBytes, PiecesCoverTheBufferOnce) {
  for (const std::int64_t members : {1, 2, 3, 4, 7}) {
    for (const std::int64_t elements : {0, 1, 2, 5, 7, 1000, 65537}) {
      std::int64_t next = 0;
      for (std::int64_t member = 0; member < members; ++member) {
        EXPECT_EQ(piece_begin(elements, members, member), next);
        next = piece_end(elements, members, member);
        EXPECT_LE(next - piece_begin(elements, members, member), piece_elements(elements, members));
      }
      EXPECT_EQ(next, elements);
    }
  }
}

TEST(CollectiveBytes, Staging) {
  static_assert(all_reduce_staging_bytes(1000, 4, 1) == 0);
  static_assert(all_reduce_staging_bytes(1001, 4, 2) == 501 * 4);
  static_assert(all_reduce_staging_bytes(7, 8, 4) == 3 * 2 * 8);
  static_assert(all_reduce_staging_bytes(0, 4, 3) == 0);
}

}  // namespace
}  // namespace garonne
