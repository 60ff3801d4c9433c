// What stopping is made of: the gate of the loop, meetings in a folder, and the files of a run
// directory that are about it.
#include <array>
#include <csignal>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/awake_time.hpp"
#include "train/run/run_lock.hpp"
#include "train/scratch.hpp"
#include "train/stop/file_meeting.hpp"
#include "train/stop/signals.hpp"
#include "train/stop/step_gate.hpp"
#include "train/stop/stop_file.hpp"

namespace garonne::train::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

// Runs steps of two instructions and an update until it is held; counts what it did.
class Runner {
 public:
  explicit Runner(StepGate& gate)
      : thread_([this, &gate] {
          for (std::int64_t step = 1; step <= last; ++step) {
            for (const bool updates : {false, false, true, true}) {
              gate.pass(step, updates);
              if (updates) updated = step;
              std::this_thread::sleep_for(50us);
            }
            gate.finish(step);
            finished = step;
          }
        }) {}
  // A runner that is held is held for good.
  ~Runner() { thread_.detach(); }

  static constexpr std::int64_t last = 1'000'000;
  std::atomic<std::int64_t> updated{0};
  std::atomic<std::int64_t> finished{0};

 private:
  std::thread thread_;
};

TEST(StepGate, HoldsTheLoopWhereNothingOfAStepHasChangedTheState) {
  for (int round = 0; round < 20; ++round) {
    // They outlive the test, for the thread does.
    auto* gate = new StepGate(0);
    auto* runner = new Runner(*gate);
    std::this_thread::sleep_for(1ms * (round % 5) + 100us * round);
    const std::int64_t entered = gate->close();
    const std::int64_t ahead = entered + round % 2;  // as where another rank was ahead by one
    gate->allow(ahead);
    EXPECT_TRUE(gate->freeze_after(ahead));
    EXPECT_EQ(runner->updated, ahead);
    std::this_thread::sleep_for(2ms);
    EXPECT_EQ(runner->updated, ahead);
    EXPECT_EQ(runner->finished, ahead);
  }
}

TEST(StepGate, WaitsForNoStepThatIsGivenUp) {
  StepGate gate(3);
  gate.pass(4, true);
  std::atomic<bool> returned{false};
  std::thread other([&] {
    EXPECT_FALSE(gate.freeze_after(gate.close()));
    returned = true;
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(returned) << "it may yet be finished";
  gate.give_up();
  other.join();
  EXPECT_TRUE(gate.change_outside().owns_lock());
}

TEST(StepGate, WaitsForAChangeOutside) {
  auto* gate = new StepGate(3);
  auto change = gate->change_outside();
  std::atomic<bool> frozen{false};
  std::thread other([&] {
    EXPECT_TRUE(gate->freeze_after(gate->close()));
    frozen = true;
  });
  std::this_thread::sleep_for(20ms);
  EXPECT_FALSE(frozen);
  change.unlock();
  other.join();
}

struct Outcome {
  std::vector<std::string> texts;
  std::string failure;
};

template <typename Work>
std::vector<Outcome> meet(const std::string& folder, int members, Work work,
                          std::chrono::milliseconds patience = 20s) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(members));
  std::vector<std::thread> threads;
  for (int member = 0; member < members; ++member) {
    threads.emplace_back([&, member] {
      Outcome& outcome = outcomes[static_cast<std::size_t>(member)];
      try {
        FileMeeting meeting(folder, member, members, patience, [] { return 0; });
        work(meeting, member, outcome);
        meeting.leave();
      } catch (const Error& error) {
        outcome.failure = error.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return outcomes;
}

TEST(FileMeeting, GathersTextsInOrderAndGoesInPhases) {
  const Scratch scratch;
  std::atomic<int> done{0};
  const auto outcomes = meet(scratch.path("meeting"), 4, [&](auto& meeting, int member, auto& own) {
    meeting.phase([&] { ++done; });
    EXPECT_EQ(done, 4);
    own.texts = meeting.gather("of " + std::to_string(member));
    EXPECT_EQ(meeting.first_text(""), "");
    EXPECT_EQ(meeting.first_text(member == 1 || member == 3 ? "by " + std::to_string(member) : ""),
              "by 1");
    meeting.phase([] {});
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.failure, "");
  EXPECT_EQ(outcomes[0].texts, (std::vector<std::string>{"of 0", "of 1", "of 2", "of 3"}));
  EXPECT_TRUE(outcomes[1].texts.empty());
  EXPECT_FALSE(fs::exists(scratch.path("meeting")));
}

TEST(FileMeeting, AsksForNewsOnlyNowAndThenAndWaitsWhileThereAreSome) {
  const Scratch scratch;
  std::atomic<std::int64_t> asked{0};
  FileMeeting waiting(scratch.path("meeting"), 0, 2, 1s, [&] { return ++asked; });
  FileMeeting late(scratch.path("meeting"), 1, 2, 1s, [] { return 0; });
  std::thread other([&] {
    std::this_thread::sleep_for(2300ms);  // longer than the patience of who hears no news
    late.gather("at last");
  });
  EXPECT_EQ(waiting.gather("first"), (std::vector<std::string>{"first", "at last"}));
  other.join();
  EXPECT_GE(asked, 3);
  EXPECT_LE(asked, 6);
}

TEST(FileMeeting, FailsOnAllWhereItFailedOnOne) {
  for (int failing = 0; failing < 3; ++failing) {
    const Scratch scratch;
    const auto outcomes = meet(scratch.path("meeting"), 3, [&](auto& meeting, int member, auto&) {
      meeting.phase([&] {
        if (member == failing) throw IoError("here", "the disk is full");
      });
    });
    for (const auto& outcome : outcomes)
      EXPECT_NE(outcome.failure.find("the disk is full"), std::string::npos) << outcome.failure;
  }
}

TEST(FileMeeting, GivesUpOnAMemberThatIsGone) {
  const Scratch scratch;
  const auto outcomes = meet(
      scratch.path("meeting"), 3,
      [&](auto& meeting, int member, auto&) {
        if (member == 1) throw IoError("rank 1", "is killed");
        meeting.phase([] {});
      },
      200ms);
  for (const int member : {0, 2})
    EXPECT_NE(outcomes[static_cast<std::size_t>(member)].failure.find("another rank is gone"),
              std::string::npos);
}

TEST(AwakeTime, CountsOfAPauseInWhichNobodyCouldAskOneSecond) {
  const AwakeTime::Clock::time_point start{};
  AwakeTime time(start);
  EXPECT_EQ(time.passed(start + 250ms), 250ms);
  EXPECT_EQ(time.passed(start + 1000ms), 1000ms);
  EXPECT_EQ(time.passed(start + 1h), 2000ms);
  EXPECT_EQ(time.passed(start + 1h + 500ms), 2500ms);
  time.restart(start + 2h);
  EXPECT_EQ(time.passed(start + 2h + 100ms), 100ms);
}

class Handlers {
 public:
  Handlers() {
    for (std::size_t i = 0; i < numbers.size(); ++i) before_[i] = std::signal(numbers[i], SIG_DFL);
  }
  ~Handlers() {
    for (std::size_t i = 0; i < numbers.size(); ++i) std::signal(numbers[i], before_[i]);
  }
  Handlers(const Handlers&) = delete;
  Handlers& operator=(const Handlers&) = delete;

  static bool is_ignored(int number) {
    struct sigaction now {};
    sigaction(number, nullptr, &now);
    return now.sa_handler == SIG_IGN;
  }

 private:
  static constexpr std::array<int, 5> numbers = {SIGHUP, SIGTERM, SIGINT, SIGUSR1, SIGPIPE};
  std::array<void (*)(int), numbers.size()> before_{};
};

TEST(SignalGuard, AProcessThatHasSavedAllDiesOfNoRequestToStop) {
  const Handlers handlers;
  { const SignalGuard guard(/*launched=*/true); }
  for (const int number : {SIGHUP, SIGTERM, SIGUSR1}) EXPECT_TRUE(Handlers::is_ignored(number));
  EXPECT_FALSE(Handlers::is_ignored(SIGINT));
}

TEST(SignalGuard, WhatIsPrintedNeedsNoReader) {
  const Handlers handlers;
  {
    const SignalGuard guard(/*launched=*/false);
    EXPECT_TRUE(Handlers::is_ignored(SIGPIPE));
  }
  EXPECT_TRUE(Handlers::is_ignored(SIGPIPE));
}

TEST(SignalGuard, AProcessThatEndsWithAnErrorCanBeEnded) {
  const Handlers handlers;
  EXPECT_THROW(
      {
        const SignalGuard guard(/*launched=*/true);
        throw std::runtime_error("an error of the run");
      },
      std::runtime_error);
  for (const int number : {SIGHUP, SIGTERM, SIGINT}) EXPECT_FALSE(Handlers::is_ignored(number));
  EXPECT_TRUE(Handlers::is_ignored(SIGUSR1));
}

TEST(StopFile, IsThereUntilForgotten) {
  const Scratch scratch;
  expect_io_error(scratch.path(), "is no run directory", [&] { ask_to_stop(scratch.path()); });
  fs::create_directories(scratch.path("checkpoints"));
  expect_io_error(scratch.path(), "no run works there", [&] { ask_to_stop(scratch.path()); });
  EXPECT_FALSE(is_asked_to_stop(scratch.path()));
  EXPECT_FALSE(may_be_running(scratch.path()));
  RunLock lock(scratch.path(), [](const std::string&) {});
  lock.take();
  EXPECT_TRUE(may_be_running(scratch.path()));
  ask_to_stop(scratch.path());
  EXPECT_TRUE(is_asked_to_stop(scratch.path()));
  forget_stop_request(scratch.path());
  EXPECT_FALSE(is_asked_to_stop(scratch.path()));
  EXPECT_FALSE(stopped_step(scratch.path()).has_value());
  note_stopped(scratch.path(), 17);
  EXPECT_EQ(stopped_step(scratch.path()), 17);
  forget_stopped(scratch.path());
  EXPECT_FALSE(stopped_step(scratch.path()).has_value());
}

TEST(Parting, IsAwaitedWhileItLivesAndClearedAwayWhenItDoesNot) {
  const Scratch scratch;
  const std::string folder = parting_folder(scratch.path(), 5, "token");
  std::vector<std::string> notes;
  const auto note = [&](const std::string& text) { notes.push_back(text); };
  await_parting(scratch.path(), note);
  EXPECT_TRUE(notes.empty());

  fs::create_directories(folder);
  std::atomic<bool> over{false};
  auto pulse = std::make_unique<PartingPulse>(folder);
  std::thread waiting([&] {
    await_parting(scratch.path(), note, 1500ms);
    over = true;
  });
  std::this_thread::sleep_for(2500ms);  // longer than its patience
  EXPECT_FALSE(over);
  pulse.reset();
  fs::remove_all(folder);
  waiting.join();
  EXPECT_EQ(notes.size(), 1);

  fs::create_directories(folder);
  const std::string half =
      scratch.path(std::string("checkpoints/.partial-step-5") + parting_suffix);
  fs::create_directories(half);
  // Each start says so once and goes on, whether it may remove anything or not.
  notes.clear();
  const std::vector<std::string> lost = await_parting(scratch.path(), note, 100ms);
  EXPECT_EQ(lost, std::vector<std::string>{folder});
  EXPECT_TRUE(fs::exists(folder));
  EXPECT_TRUE(fs::exists(half));
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_NE(notes.back().find("no sign of life"), std::string::npos);
  remove_lost_parting(scratch.path(), lost, note);
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_FALSE(fs::exists(half));
  EXPECT_EQ(notes.size(), 2U);
}

}  // namespace
}  // namespace garonne::train::test
