// What reductions hold while they are under way, and when there is room for one more.
#include "plan/step/reduction_window.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace garonne::plan {
namespace {

TEST(ReductionWindow, AloneAnyHasRoom) {
  ReductionWindow window({100});
  EXPECT_TRUE(window.empty());
  EXPECT_TRUE(window.has_room(1000));
  window.submitted(3, 1000);
  EXPECT_FALSE(window.empty());
  EXPECT_FALSE(window.has_room(0));
  window.waited(3);
  EXPECT_TRUE(window.empty());
  EXPECT_TRUE(window.has_room(1000));
}

TEST(ReductionWindow, BytesUnderWayFillTheLimitAndNoMore) {
  ReductionWindow window({100});
  window.submitted(3, 40);
  EXPECT_TRUE(window.has_room(60));
  EXPECT_FALSE(window.has_room(61));
  window.submitted(5, 60);
  EXPECT_FALSE(window.has_room(1));
  EXPECT_TRUE(window.has_room(0));
  window.waited(3);
  EXPECT_TRUE(window.has_room(40));
  EXPECT_FALSE(window.has_room(41));
}

TEST(ReductionWindow, WithoutLimitsOneIsUnderWay) {
  ReductionWindow window({});
  window.submitted(1, 0);
  EXPECT_TRUE(window.has_room(0));
  EXPECT_FALSE(window.has_room(1));
}

TEST(ReductionWindow, LimitsGoByCompleteBucketsAndTheLastStays) {
  ReductionWindow window({10, 30, 20});
  window.submitted(0, 10);
  EXPECT_FALSE(window.has_room(1));
  window.completed_bucket();
  EXPECT_TRUE(window.has_room(20));
  EXPECT_FALSE(window.has_room(21));
  for (int buckets = 2; buckets < 5; ++buckets) {
    window.completed_bucket();
    EXPECT_TRUE(window.has_room(10)) << buckets;
    EXPECT_FALSE(window.has_room(11)) << buckets;
  }
}

TEST(ReductionWindow, KnowsTheOldestAndTheNewestWhicheverIsWaitedFor) {
  ReductionWindow window({100});
  for (const int instruction : {2, 4, 7, 9}) window.submitted(instruction, instruction);
  EXPECT_EQ(window.oldest(), 2);
  EXPECT_EQ(window.newest(), 9);
  window.waited(9);
  EXPECT_EQ(window.newest(), 7);
  window.waited(4);
  EXPECT_EQ(window.oldest(), 2);
  window.waited(2);
  EXPECT_EQ(window.oldest(), 7);
  EXPECT_EQ(window.newest(), 7);
  EXPECT_TRUE(window.has_room(93));
  EXPECT_FALSE(window.has_room(94));
}

TEST(ReductionWindow, WaitsAreHeldBetweenTheCalls) {
  ReductionWindow window({});
  EXPECT_FALSE(window.waits_held());
  window.hold_waits();
  EXPECT_TRUE(window.waits_held());
  window.allow_waits();
  EXPECT_FALSE(window.waits_held());
}

TEST(ReductionWindow, RefusesWhatCannotBe) {
  ReductionWindow window({100});
  EXPECT_THROW(window.oldest(), InternalError);
  EXPECT_THROW(window.newest(), InternalError);
  EXPECT_THROW(window.waited(3), InternalError);
  window.submitted(3, 60);
  EXPECT_THROW(window.submitted(4, 41), InternalError);
  EXPECT_THROW(window.submitted(3, 1), InternalError);
  EXPECT_THROW(window.waited(4), InternalError);
  window.waited(3);
  EXPECT_THROW(window.waited(3), InternalError);
}

}  // namespace
}  // namespace garonne::plan
