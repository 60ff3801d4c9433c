// Places and speeds of ranks that are made up, and what is said about them.
#include "train/setup/odd_ranks.hpp"

#include <gtest/gtest.h>

#include <random>

namespace garonne::train {
namespace {

using What = OddRank::What;

std::vector<int> cores(int first, int last) {
  std::vector<int> list;
  for (int core = first; core <= last; ++core) list.push_back(core);
  return list;
}

// `hosts` of `ranks` each, which have cores of their own.
std::vector<RankPlace> good_places(int hosts, int ranks, int threads = 4) {
  std::vector<RankPlace> places;
  for (int host = 0; host < hosts; ++host)
    for (int rank = 0; rank < ranks; ++rank)
      places.push_back({"node" + std::to_string(host),
                        cores(rank * threads, (rank + 1) * threads - 1), threads, 0});
  return places;
}

std::vector<RankSpeed> good_speeds(std::size_t ranks) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> noise(0.9, 1.1);
  std::vector<RankSpeed> speeds(ranks);
  for (RankSpeed& speed : speeds)
    speed = {20e-3 * noise(random), 10e-3 * noise(random), 1e-3 * noise(random)};
  return speeds;
}

TEST(Placement, NothingIsSaidOfRanksWithCoresOfTheirOwnOrOfOneNodeForAll) {
  EXPECT_TRUE(placement_warnings(good_places(2, 4)).empty());
  const std::vector<RankPlace> unbound(4, {"node0", cores(0, 15), 4, 0});
  EXPECT_TRUE(placement_warnings(unbound).empty());
  const std::vector<RankPlace> unknown(4, {"node0", {}, 4, 0});
  EXPECT_TRUE(placement_warnings(unknown).empty());
  EXPECT_TRUE(oversubscribed_hosts(unknown).empty());
}

TEST(Placement, MoreThreadsThanCoresOfAHostAreSaidOnceForIt) {
  std::vector<RankPlace> places = good_places(2, 4);
  for (std::size_t rank = 4; rank < 8; ++rank) places[rank].cores = cores(0, 7);
  EXPECT_EQ(placement_warnings(places),
            std::vector<std::string>{
                "ranks 4-7 of node1 run 16 threads on 8 cores (0-7): start fewer ranks there, set "
                "run.threads lower, or ask for more cores (srun --cpus-per-task)"});
  EXPECT_EQ(oversubscribed_hosts(places), std::vector<std::string>{"node1"});
}

TEST(Placement, AQuotaCountsAsFewerCores) {
  std::vector<RankPlace> places(2, {"node0", cores(0, 63), 8, 16});
  EXPECT_TRUE(placement_warnings(places).empty());
  for (RankPlace& place : places) place.core_quota = 8;
  const auto said = placement_warnings(places);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_NE(said[0].find("16 threads on a quota of 8 cores (cpu.max"), std::string::npos)
      << said[0];
  places[0].core_quota = 0;
  EXPECT_TRUE(placement_warnings(places).empty()) << "one of them has none";
}

// As by mpirun's own binding to a core, with several threads.
TEST(Placement, ThreadsOfARankThatAreMoreThanItsCoresAreSaidWithTheOptionToSet) {
  std::vector<RankPlace> places = good_places(1, 4);
  for (int rank = 0; rank < 4; ++rank) places[static_cast<std::size_t>(rank)].cores = {rank};
  const auto said = placement_warnings(places);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0],
            "ranks 0-3 of node0 run 4 threads on 1 core each: bind ranks to as many cores (mpirun "
            "--map-by slot:PE=4, srun --cpus-per-task=4) or to none (mpirun --bind-to none), or "
            "set run.threads = 1");
}

TEST(Placement, RanksThatWereBoundToOneCoreBesideIdleOnesAreNamed) {
  std::vector<RankPlace> places = good_places(1, 4, 1);
  places[3].cores = {1};
  EXPECT_EQ(placement_warnings(places),
            std::vector<std::string>{
                "ranks 1,3 of node0 run 2 threads on core 1, to which all of them are bound: give "
                "each cores of its own (mpirun --bind-to core --map-by core, srun "
                "--cpu-bind=cores)"});
}

TEST(OddRanks, NoneAmongRanksThatAreAlike) {
  for (const int ranks : {1, 2, 3, 8})
    EXPECT_TRUE(
        odd_ranks(good_speeds(static_cast<std::size_t>(ranks)), good_places(1, ranks)).empty());
}

TEST(OddRanks, TheSlowOneIsFoundWhicheverItIsAndWhateverItIsSlowIn) {
  for (const int count : {2, 3, 8}) {
    for (int slow = 0; slow < count; ++slow) {
      const auto places = good_places(1, count);
      auto speeds = good_speeds(places.size());
      speeds[static_cast<std::size_t>(slow)].compute_seconds = 60e-3;
      auto odd = odd_ranks(speeds, places);
      ASSERT_EQ(odd.size(), 1U) << count << " " << slow;
      EXPECT_EQ(odd[0].rank, slow);
      EXPECT_EQ(odd[0].what, What::Compute);
      EXPECT_NEAR(odd[0].times(), 3, 0.4);
      speeds = good_speeds(places.size());
      speeds[static_cast<std::size_t>(slow)].memory_seconds = 60e-3;
      odd = odd_ranks(speeds, places);
      ASSERT_EQ(odd.size(), 1U);
      EXPECT_EQ(odd[0].what, What::Memory);
      EXPECT_EQ(describe(odd[0], places).find("rank " + std::to_string(slow) + " on node0 moves"),
                0U);
    }
  }
}

TEST(OddRanks, TwiceIsNotMoreThanTwiceAndSomeMillisecondsAreNothing) {
  const auto places = good_places(1, 4);
  std::vector<RankSpeed> speeds(4, {20e-3, 1e-3, 1e-4});
  speeds[1].compute_seconds = 40e-3;
  speeds[2].memory_seconds = 5e-3;
  speeds[3].link_seconds = 5e-4;
  EXPECT_TRUE(odd_ranks(speeds, places).empty());
  speeds[1].compute_seconds = 41e-3;
  EXPECT_EQ(odd_ranks(speeds, places).size(), 1U);
}

// Where all differ, none is odd.
TEST(OddRanks, WhatIsWithinTheDeviationOfTheOthersIsNotNamed) {
  const auto places = good_places(1, 5);
  std::vector<RankSpeed> speeds(5, {20e-3, 10e-3, 1e-3});
  const double seconds[] = {10e-3, 20e-3, 30e-3, 45e-3, 70e-3};
  for (std::size_t rank = 0; rank < 5; ++rank) speeds[rank].compute_seconds = seconds[rank];
  EXPECT_TRUE(odd_ranks(speeds, places).empty());
}

TEST(OddRanks, RanksOfAHostWithTooFewCoresAreNeitherNamedNorComparedWith) {
  auto places = good_places(2, 4);
  auto speeds = good_speeds(8);
  for (std::size_t rank = 4; rank < 8; ++rank) {
    places[rank].cores = cores(0, 3);
    const auto slowness = static_cast<double>(rank);
    speeds[rank] = {slowness * 20e-3, slowness * 10e-3, slowness * 1e-3};
  }
  EXPECT_TRUE(odd_ranks(speeds, places).empty());
  speeds[0].compute_seconds = 50e-3;
  const auto odd = odd_ranks(speeds, places);
  ASSERT_EQ(odd.size(), 1U);
  EXPECT_EQ(odd[0].rank, 0);
  EXPECT_LT(odd[0].median, 25e-3);
}

TEST(OddRanks, LinksAreComparedWithThoseOfTheirKind) {
  const auto places = good_places(6, 2);
  auto speeds = good_speeds(12);
  for (std::size_t rank = 0; rank < 12; rank += 2) speeds[rank].link_seconds = 10e-3;
  EXPECT_TRUE(odd_ranks(speeds, places).empty()) << "those between hosts are all slower";
  speeds[4].link_seconds = 30e-3;
  const auto odd = odd_ranks(speeds, places);
  ASSERT_EQ(odd.size(), 1U);
  EXPECT_EQ(odd[0].what, What::Link);
  EXPECT_EQ(describe(odd[0], places)
                .find("the link from rank 3 on node1 to rank 4 on node2 takes "
                      "3.0 times as long"),
            0U)
      << describe(odd[0], places);
  // The ring closes with rank 0.
  speeds[4].link_seconds = 10e-3;
  speeds[0].link_seconds = 30e-3;
  EXPECT_EQ(describe(odd_ranks(speeds, places).at(0), places).find("the link from rank 11"), 0U);
}

// Of two nodes and of three there are as many links.
TEST(OddRanks, OfFewLinksThoseAreNamedThatAreFarFromTheFastest) {
  for (const int hosts : {2, 3}) {
    const auto places = good_places(hosts, 1);
    auto speeds = good_speeds(places.size());
    speeds[1].link_seconds = 3e-3;
    EXPECT_TRUE(odd_ranks(speeds, places).empty()) << hosts;
    speeds[1].link_seconds = 10e-3;
    const auto odd = odd_ranks(speeds, places);
    ASSERT_EQ(odd.size(), 1U) << hosts;
    EXPECT_EQ(odd[0].rank, 1);
    EXPECT_NE(describe(odd[0], places).find(" times as long as the fastest of the others"),
              std::string::npos);
  }
  // A slow node has two of three.
  const auto places = good_places(3, 1);
  auto speeds = good_speeds(3);
  speeds[1].link_seconds = speeds[2].link_seconds = 10e-3;
  EXPECT_EQ(odd_ranks(speeds, places).size(), 2U);
}

TEST(OddRanks, GpusAreComparedWhereTheyWereMeasured) {
  for (const int count : {2, 8}) {
    const auto places = good_places(1, count);
    auto speeds = good_speeds(places.size());
    for (RankSpeed& speed : speeds) {
      speed.gpu_memory_seconds = 0.5e-3;
      speed.gpu_in_seconds = 3e-3;
      speed.gpu_out_seconds = 4e-3;
    }
    EXPECT_TRUE(odd_ranks(speeds, places).empty());
    const auto named = [&](double RankSpeed::*of, double seconds, What what, const char* text) {
      auto slow = speeds;
      slow[1].*of = seconds;
      const auto odd = odd_ranks(slow, places);
      ASSERT_EQ(odd.size(), 1U) << text;
      EXPECT_EQ(odd[0].what, what);
      EXPECT_EQ(describe(odd[0], places).find(text), 0U) << describe(odd[0], places);
    };
    named(&RankSpeed::gpu_memory_seconds, 1.5e-3, What::GpuMemory,
          "the GPU of rank 1 on node0 copies within its memory 3.0 times as long");
    named(&RankSpeed::gpu_in_seconds, 9e-3, What::GpuIn,
          "the GPU of rank 1 on node0 copies from the host 3.0 times as long");
    named(&RankSpeed::gpu_out_seconds, 12e-3, What::GpuOut,
          "the GPU of rank 1 on node0 copies to the host 3.0 times as long");
    for (std::size_t rank = 1; rank < speeds.size(); ++rank)
      speeds[rank].gpu_memory_seconds = speeds[rank].gpu_in_seconds = speeds[rank].gpu_out_seconds =
          0;
    EXPECT_TRUE(odd_ranks(speeds, places).empty()) << "one alone, as where the others are full";
  }
}

TEST(OddRanks, ASlowRankIsNotBlamedOnItsLinks) {
  const auto places = good_places(1, 8);
  auto speeds = good_speeds(8);
  speeds[3] = {80e-3, 10e-3, 20e-3};
  speeds[4].link_seconds = 20e-3;
  const auto odd = odd_ranks(speeds, places);
  ASSERT_EQ(odd.size(), 1U);
  EXPECT_EQ(odd[0].what, What::Compute);
}

TEST(OddRanks, OnlyThoseThatAreOddAgainStay) {
  const std::vector<OddRank> first = {{What::Compute, 1, 3, 1}, {What::Link, 2, 3, 1}};
  const std::vector<OddRank> again = {{What::Compute, 2, 3, 1}, {What::Link, 2, 4, 1}};
  const auto both = odd_in_both(first, again);
  ASSERT_EQ(both.size(), 1U);
  EXPECT_EQ(both[0].rank, 2);
  EXPECT_EQ(both[0].times(), 4) << "as measured last";
  EXPECT_TRUE(odd_in_both(first, {}).empty());
}

}  // namespace
}  // namespace garonne::train
