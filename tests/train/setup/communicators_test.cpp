// What is left for NCCL beside the budget of a run.
#include "train/setup/communicators.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"
#include "train/mebibyte.hpp"

namespace garonne::train {
namespace {

TEST(Communicators, AreOfTheGroupsOfARank) {
  const Grid grid({.data = 4, .pipeline = 3, .tensor = 2});
  plan::PipelinePlace place;
  // One value over each of two boundaries.
  place.lanes = {{0, 1, 0}, {1, 0, 1}, {1, 2, 2}, {2, 1, 3}};
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const auto groups = nccl_groups(grid, place, rank);
    ASSERT_EQ(groups.size(), 4U);
    EXPECT_EQ(groups[0].members, 4);
    EXPECT_EQ(groups[0].channels, 8);
    EXPECT_EQ(groups[1].members, 2);
    EXPECT_EQ(groups[2].members, 3);
    EXPECT_FALSE(groups[2].all_to_all) << "messages go by lanes";
    EXPECT_EQ(groups[2].lanes, grid.coordinates_of(rank).pipeline == 1 ? 4 : 2);
    EXPECT_EQ(groups[3].members, 24);
    EXPECT_EQ(groups[3].channels, 1) << "some numbers a step";
  }
  place.tied_group = {0, 2};
  EXPECT_EQ(nccl_groups(grid, place, 0).size(), 5U);
  EXPECT_EQ(nccl_groups(grid, place, 0)[3].members, 2);
}

TEST(Communicators, OfDataRanksAloneHaveNoLanes) {
  const Grid grid({.data = 8, .pipeline = 1, .tensor = 1});
  const auto groups = nccl_groups(grid, {}, 3);
  EXPECT_EQ(dist::nccl_bytes(groups),
            dist::nccl_bytes({{.members = 8, .channels = 8}, {.members = 8, .channels = 1}}));
}

TEST(Communicators, TheAutomaticTransportIsOneThatIsBuilt) {
  EXPECT_EQ(transport_on_gpus(/*any_shared=*/false, /*has_nccl=*/true), "nccl");
  EXPECT_EQ(transport_on_gpus(true, true), "mpi");
  EXPECT_EQ(transport_on_gpus(false, false), "mpi") << "what is not built is not chosen";
}

// What budgets leave before a model is cut is no less than what its stages take.
TEST(Communicators, OfARunAreBoundedBeforeItIsCut) {
  RunConfig config;
  config.train.micro_batch = 1;
  config.train.global_batch = 32;
  config.grid.data = 2;
  config.grid.pipeline = 4;
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "chimera", "zb-v"}) {
    config.grid.schedule = schedule;
    const bool chunked = std::string(schedule) != "gpipe" && std::string(schedule) != "1f1b";
    plan::PipelinePlace place;
    place.tied_group = {0, 3};
    // Of an inner stage: each chunk has a value in and out, and their gradients.
    for (int lane = 0; lane < (chunked ? 8 : 4); ++lane) place.lanes.push_back({1, 2, lane});
    EXPECT_EQ(communicator_bytes(config), dist::nccl_bytes(nccl_groups(Grid({2, 4, 1}), place, 2)))
        << schedule;
  }
}

TEST(Communicators, ThatTakeMoreThanWasLeftAreNamed) {
  const BesideNccl fits{.wanted_bytes = 100 * mebibyte,
                        .free_bytes = 100 * mebibyte,
                        .taken_bytes = 90 * mebibyte,
                        .left_for_bytes = 10 * mebibyte};
  EXPECT_NO_THROW(expect_room_beside_nccl(fits));
  BesideNccl lacks = fits;
  lacks.free_bytes -= mebibyte;
  try {
    expect_room_beside_nccl(lacks);
    ADD_FAILURE() << "the tier does not fit";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    for (const char* word : {"memory.budget", "NCCL has taken 90", "80", "NCCL_BUFFSIZE"})
      EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
  }
  // What is missing then is not NCCL's.
  lacks.left_for_bytes = lacks.taken_bytes;
  EXPECT_NO_THROW(expect_room_beside_nccl(lacks));
}

}  // namespace
}  // namespace garonne::train
