// Parts of a work in threads.
#include "base/in_threads.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/index.hpp"

namespace garonne {
namespace {

TEST(InThreads, EachPartIsDoneOnce) {
  for (const int parts : {0, 1, 2, 7, 1000}) {
    std::vector<std::atomic<int>> done(as_index(parts));
    in_threads(parts, [&](int part) { ++done[as_index(part)]; });
    for (const std::atomic<int>& times : done) EXPECT_EQ(times, 1);
  }
}

TEST(InThreads, TheLowestThatFailsIsToldWhenAllHaveEnded) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    std::atomic<int> ended = 0;
    const auto work = [&](int part) {
      ++ended;
      if (part % 3 == 2) throw std::runtime_error(std::to_string(part));
    };
    try {
      in_threads(50, work);
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "2");
    }
    EXPECT_EQ(ended, 50);
  }
}

}  // namespace
}  // namespace garonne
