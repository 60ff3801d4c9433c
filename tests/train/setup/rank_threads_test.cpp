// Threads of ranks that may use different numbers of cores: run.threads = 0 is the least of all.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <random>

#include "dist/session.hpp"
#include "train/setup/rank_agreement.hpp"

namespace garonne::train {
namespace {

RunConfig config_with_threads(std::int64_t threads) {
  RunConfig config;
  config.run.threads = threads;
  return config;
}

TEST(RankThreads, AllTakeTheLeastThatAnyHas) {
  dist::Session session = dist::Session::start();
  ASSERT_GT(session.size(), 1);
  std::mt19937 random(7);  // the same on all ranks
  for (int round = 0; round < 50; ++round) {
    int least = 1 << 20;
    Cores mine;
    for (int rank = 0; rank < session.size(); ++rank) {
      Cores cores;
      cores.of_node = static_cast<int>(1 + random() % 64);
      cores.allowed = static_cast<int>(1 + random() % static_cast<unsigned>(cores.of_node));
      const int share = cores.of_node / session.ranks_on_node();
      least = std::min(least, std::max(1, std::min(cores.allowed, share)));
      if (rank == session.rank()) mine = cores;
    }
    EXPECT_EQ(agree_on_run(config_with_threads(0), session, mine), least);
    EXPECT_EQ(agree_on_run(config_with_threads(3), session, mine), 3) << "what is asked for";
  }
}

// As under a launcher that binds ranks to cores.
TEST(RankThreads, CoresAreThoseThatTheProcessIsBoundTo) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(Cores::of_this_process().allowed, CPU_COUNT(&before));
  std::size_t first = 0;
  while (CPU_ISSET(first, &before) == 0) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const Cores bound = Cores::of_this_process();
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(bound.allowed, 1);
  EXPECT_GE(bound.of_node, CPU_COUNT(&before));
  EXPECT_EQ(threads_of_rank(config_with_threads(0), 1, bound), 1);
  EXPECT_EQ(threads_of_rank(config_with_threads(5), 1, bound), 5);
}

}  // namespace
}  // namespace garonne::train
