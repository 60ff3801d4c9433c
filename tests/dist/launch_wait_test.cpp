// What a rank sees of the others of its host, and what it makes of it while it waits.
#include "dist/launch_wait.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace garonne::dist {
namespace {

using State = HostRank::State;

// A folder like /proc, of the processes that are put into it.
class HostRanksTest : public testing::Test {
 protected:
  HostRanksTest()
      : folder_(std::filesystem::temp_directory_path() /
                ("processes-" + std::to_string(getpid()))) {
    std::filesystem::create_directory(folder_);
  }
  ~HostRanksTest() override { std::filesystem::remove_all(folder_); }

  void put(const std::string& process, const std::string& stat, const std::string& environment) {
    std::filesystem::create_directory(folder_ / process);
    std::ofstream(folder_ / process / "stat") << stat;
    std::ofstream(folder_ / process / "environ") << environment;
  }

  std::vector<HostRank> found(const std::string& job) const {
    return host_ranks({"RANKS", 8, "RANK", 2, job}, folder_);
  }

  const std::filesystem::path folder_;
};

std::string environment(const std::string& rank, const std::string& job) {
  return std::string("HOME=/root") + '\0' + "RANK=" + rank + '\0' + "SPACE=" + job + '\0';
}

std::string texts(const std::vector<HostRank>& ranks) {
  std::string text;
  for (const HostRank& one : ranks) {
    const char* const state = one.state == State::Stopped ? "stopped"
                              : one.state == State::Busy  ? "busy"
                                                          : "awake";
    text += std::to_string(one.rank) + " " + std::to_string(one.process) + " " + state + "; ";
  }
  return text;
}

TEST_F(HostRanksTest, AreThoseOfTheJobByTheirWorstProcess) {
  put("101", "101 (garonne) S 90 101 90", environment("3", "a"));
  put("102", "102 (a) T 1 (b)) T 90 102", environment("0", "a"));  // names may hold anything
  put("103", "103 (garonne) D 90 103", environment("1", "a"));
  put("104", "104 (garonne) t 90 104", environment("4", "a"));
  // A shell that waits for the rank it started, and a helper of a rank.
  put("105", "105 (sh) S 90 105", environment("5", "a"));
  put("106", "106 (garonne) T 105 105", environment("5", "a"));
  put("107", "107 (reader) S 101 101", environment("3", "a"));
  // Of this rank, another job, ended, no rank, no numbers, nothing that can be read.
  put("108", "108 (reader) T 90 101", environment("2", "a"));
  put("109", "109 (garonne) T 90 101", environment("6", "b"));
  put("110", "110 (garonne) Z 90 101", environment("6", "a"));
  put("111", "111 (garonne) T 90 101", environment("", "a"));
  put("112", "112 (garonne) T 90 101", std::string("RANK=6") + '\0');
  put("113", "113 (garonne", environment("6", "a"));
  put("114", "114 (garonne) T", environment("6", "a"));
  put("115", "115 (garonne) T x 101", environment("6", "a"));
  put("self", "116 (garonne) T 90 101", environment("6", "a"));
  std::filesystem::create_directory(folder_ / "117");
  EXPECT_EQ(texts(found("SPACE=a")),
            "0 102 stopped; 1 103 busy; 3 101 awake; 4 104 busy; 5 106 stopped; ");
}

TEST_F(HostRanksTest, AreThoseOfOneParentWhereTheJobHasNoName) {
  const std::string parent = std::to_string(getppid());
  put("201", "201 (garonne) T " + parent + " 201", environment("3", "a"));
  put("202", "202 (garonne) T 1 202", environment("4", "a"));
  EXPECT_EQ(texts(found("")), "3 201 stopped; ");
}

TEST(HostRanks, AreSeenOnThisHost) {
  const pid_t child = fork();
  if (child == 0) {
    setenv("GARONNE_TEST_RANK", "1", 1);
    setenv("GARONNE_TEST_JOB", "this", 1);
    execlp("sleep", "sleep", "60", nullptr);
    _exit(1);
  }
  const Launcher launcher{"x", 2, "GARONNE_TEST_RANK", 0, "GARONNE_TEST_JOB=this"};
  const auto is = [&](State state) {
    for (int looks = 0; looks < 600; ++looks) {
      const std::vector<HostRank> ranks = host_ranks(launcher);
      if (ranks.size() == 1 && ranks[0].process == child && ranks[0].state == state) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return false;
  };
  EXPECT_TRUE(is(State::Awake));
  kill(child, SIGSTOP);
  EXPECT_TRUE(is(State::Stopped));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(host_ranks(launcher).empty());
}

// A wait of rank `rank` beside `others`, looked after four times a second to its end or `longest`:
// when it ended, why, and what was said.
struct Waited {
  double seconds = 0;
  std::string why;
  std::string said;
};

Waited wait_beside(int rank, const std::function<std::vector<HostRank>(double)>& others,
                   double longest, double limit) {
  Waited waited;
  LaunchWait wait(
      "[rank " + std::to_string(rank) + "/4 here]", [&] { return others(waited.seconds); }, rank);
  testing::internal::CaptureStderr();
  for (; waited.seconds < longest && waited.why.empty(); waited.seconds += 0.25)
    waited.why = wait.ended_by(waited.seconds, "a call", limit);
  waited.said = testing::internal::GetCapturedStderr();
  return waited;
}

HostRank other(int rank, State state) {
  return {rank, 100 + rank, state};
}

TEST(LaunchWait, EndsHalfAMinuteAfterSomebodyWasStopped) {
  const auto stopped = [](double) {
    return std::vector{other(1, State::Stopped), other(3, State::Awake)};
  };
  const Waited waited = wait_beside(0, stopped, 1000, 0);
  EXPECT_EQ(waited.why, "rank 1 (process 101 of this host) was stopped");
  EXPECT_EQ(waited.said, "");
  EXPECT_GE(waited.seconds, LaunchWait::silence);
  EXPECT_LT(waited.seconds, LaunchWait::silence + 6);
  // Who does not speak for the host leaves it to who does, for some seconds.
  const Waited later = wait_beside(
      2,
      [](double) {
        return std::vector{other(0, State::Awake), other(1, State::Stopped)};
      },
      1000, 0);
  EXPECT_EQ(later.why, waited.why);
  EXPECT_GE(later.seconds, waited.seconds + 4);
  EXPECT_LT(later.seconds, 45);
}

TEST(LaunchWait, IsNotEndedByASingleLookAtAStop) {
  const auto once = [](double seconds) {
    return std::vector{other(1, seconds > 30 && seconds < 34 ? State::Stopped : State::Awake)};
  };
  EXPECT_EQ(wait_beside(0, once, 100, 0).why, "");
}

TEST(LaunchWait, NamesEachMinuteWhoIsHeldUp) {
  const auto held = [](double) { return std::vector{other(1, State::Busy)}; };
  const std::string line =
      "rank 1 (process 101 of this host) is in a call that nothing interrupts, as of a file system "
      "that does not answer";
  const Waited waited = wait_beside(0, held, 200, 0);
  EXPECT_EQ(waited.why, "");
  EXPECT_EQ(std::count(waited.said.begin(), waited.said.end(), '\n'), 3) << waited.said;
  EXPECT_EQ(waited.said.substr(0, waited.said.find('\n')),
            "[rank 0/4 here] waiting for 60 s in a call: " + line);
  // By one rank of the host, the lowest that waits.
  const auto both = [](double) {
    return std::vector{other(0, State::Busy), other(1, State::Awake)};
  };
  EXPECT_EQ(wait_beside(2, both, 200, 0).said, "");
}

TEST(LaunchWait, EndsByItsLimitWhereNobodyOfTheHostIsAtFault) {
  const auto nobody = [](double) { return std::vector{other(1, State::Awake)}; };
  const Waited waited = wait_beside(0, nobody, 1000, 600);
  EXPECT_EQ(waited.why,
            "it has not come back within 600 s; no other rank of this host was stopped; one "
            "elsewhere is missing, or the launcher or the network hangs");
  EXPECT_LT(waited.seconds, 606);
  EXPECT_EQ(wait_beside(0, nobody, 1000, 0).why, "");
}

TEST(LaunchWait, BeginsAnewWithEachWait) {
  std::vector<HostRank> others = {other(1, State::Stopped)};
  LaunchWait wait(
      "[here]", [&] { return others; }, 0);
  for (const double seconds : {20.0, 27.0}) EXPECT_EQ(wait.ended_by(seconds, "a call", 0), "");
  for (const double seconds : {0.5, 27.5}) EXPECT_EQ(wait.ended_by(seconds, "a call", 0), "");
  EXPECT_NE(wait.ended_by(33, "a call", 0), "");
  EXPECT_EQ(wait.message("a call", "why"), "[here] a call failed: why");
}

TEST(WatchedCallDeathTest, EndsTheProcessWithItsCodeAndALine) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        LaunchWait wait(
            "[here]", [] { return std::vector<HostRank>(); }, 0);
        const WatchedCall call(wait, "a call", 1);
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      testing::ExitedWithCode(4), "\\[here\\] a call failed: it has not come back within 1 s");
}

TEST(WatchedCall, IsOverWhereTheCallComesBack) {
  LaunchWait wait(
      "[here]", [] { return std::vector<HostRank>(); }, 0);
  const WatchedCall call(wait, "a call", 1);
}

}  // namespace
}  // namespace garonne::dist
