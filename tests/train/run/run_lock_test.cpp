// One run at a time: locks of living, dead and unreachable processes.
#include "train/run/run_lock.hpp"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>

#include "train/scratch.hpp"

namespace garonne::train::test {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

struct Notes {
  std::vector<std::string> texts;
  std::function<void(const std::string&)> take() {
    return [this](const std::string& text) { texts.push_back(text); };
  }
};

void ignore(const std::string&) {}

struct TakenLock : RunLock {
  TakenLock(const std::string& folder, std::function<void(const std::string&)> note,
            const LockTimes& times = {})
      : RunLock(folder, std::move(note), times) {
    take();
  }
};

nlohmann::json lock_in(const std::string& folder) {
  return nlohmann::json::parse(read_bytes(folder + "/lock"));
}

void write_lock(const std::string& folder, const nlohmann::json& json) {
  write_bytes(folder + "/lock", json.dump());
}

// What this process writes, with some keys of another.
nlohmann::json lock_of_another(const std::string& folder, const nlohmann::json& changes) {
  nlohmann::json json;
  {
    const TakenLock lock(folder, ignore);
    json = lock_in(folder);
  }
  json.update(changes);
  json["token"] = "another";
  return json;
}

TEST(RunLock, HoldsOffASecondRunAndSaysWhoHasIt) {
  const Scratch scratch;
  const TakenLock lock(scratch.path(), ignore);
  const auto json = lock_in(scratch.path());
  EXPECT_EQ(json["process"], ::getpid());
  EXPECT_EQ(json["format"], "garonne.lock");
  const std::string before = read_bytes(scratch.path("lock"));
  const std::string who =
      "process " + std::to_string(::getpid()) + " on " + json["host"].get<std::string>();
  expect_io_error(scratch.path("lock"), who,
                  [&] { const TakenLock second(scratch.path(), ignore); });
  expect_io_error(scratch.path("lock"), json["since"].get<std::string>(),
                  [&] { const TakenLock second(scratch.path(), ignore); });
  EXPECT_EQ(read_bytes(scratch.path("lock")), before);
  std::vector<fs::path> left(fs::directory_iterator(scratch.path()), fs::directory_iterator());
  EXPECT_EQ(left.size(), 1U) << "nothing but the lock";
}

TEST(RunLock, LeavesNothingAtTheEnd) {
  const Scratch scratch;
  { const TakenLock lock(scratch.path("a/b/"), ignore); }
  EXPECT_FALSE(fs::exists(scratch.path("a"))) << "folders that were made for it go";
  {
    const TakenLock lock(scratch.path("a/b"), ignore);
    write_bytes(scratch.path("a/b/config.toml"), "x");
  }
  EXPECT_TRUE(fs::exists(scratch.path("a/b/config.toml")));
  EXPECT_FALSE(fs::exists(scratch.path("a/b/lock")));
  write_bytes(scratch.path("file"), "");
  EXPECT_THROW(TakenLock(scratch.path("file"), ignore), IoError);
}

TEST(RunLock, JudgesHolders) {
  const LockHolder here = this_holder();
  ASSERT_FALSE(here.boot.empty());
  ASSERT_GT(here.process_start, 0);
  EXPECT_EQ(state_of_holder(here, here), HolderState::Running);
  LockHolder holder = here;
  holder.process_start += 1;
  EXPECT_EQ(state_of_holder(holder, here), HolderState::Gone) << "the number was used again";
  holder = here;
  holder.process = 999'999'999;
  EXPECT_EQ(state_of_holder(holder, here), HolderState::Gone);
  holder.process_namespace = "pid:[1]";
  EXPECT_EQ(state_of_holder(holder, here), HolderState::Unknown) << "in another container";
  holder.boot = "another";
  holder.host = "another";
  EXPECT_EQ(state_of_holder(holder, here), HolderState::Unknown) << "on another machine";

  // The machine was started again.
  LockHolder now = here;
  now.process_namespace = "pid:[4026531836]";
  now.machine = "0123";
  holder = now;
  holder.boot = "former";
  EXPECT_EQ(state_of_holder(holder, now), HolderState::Gone);
  holder.machine = "4567";
  EXPECT_EQ(state_of_holder(holder, now), HolderState::Unknown) << "another of the same name";
  holder.machine = now.machine = "";
  EXPECT_EQ(state_of_holder(holder, now), HolderState::Unknown);

  // The same job, queued again on another node.
  now = here;
  now.cluster = "north";
  now.job = "77";
  now.restarts = 2;
  holder = now;
  holder.host = holder.boot = holder.machine = "another";
  holder.restarts = 1;
  EXPECT_EQ(state_of_holder(holder, now), HolderState::Gone);
  holder.restarts = 2;
  EXPECT_EQ(state_of_holder(holder, now), HolderState::Unknown) << "another step of the job";
  holder.restarts = 1;
  holder.cluster = "south";
  EXPECT_EQ(state_of_holder(holder, now), HolderState::Unknown) << "numbers are of a cluster";
  holder.cluster = now.cluster;
  holder.job = "78";
  EXPECT_EQ(state_of_holder(holder, now), HolderState::Unknown);
}

// A child that holds the lock until it is killed.
pid_t holding_child(
    const std::string& folder, const std::function<void()>& prepare = [] {}) {
  std::array<int, 2> ready{};
  if (::pipe(ready.data()) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    prepare();
    try {
      const TakenLock lock(folder, ignore);
      (void)!::write(ready[1], "x", 1);
      for (;;) ::pause();
    } catch (const Error&) {
      ::_exit(1);
    }
  }
  ::close(ready[1]);
  char byte = 0;
  const bool holds = ::read(ready[0], &byte, 1) == 1;
  ::close(ready[0]);
  return holds ? child : -1;
}

TEST(RunLock, IsTakenOverFromAKilledProcess) {
  for (const bool waited_for : {true, false}) {
    const Scratch scratch;
    const pid_t child = holding_child(scratch.path());
    ASSERT_GT(child, 0);
    EXPECT_THROW(TakenLock(scratch.path(), ignore), IoError);
    ::kill(child, SIGKILL);
    siginfo_t ended{};
    ::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | (waited_for ? 0 : WNOWAIT));
    Notes notes;
    {
      const TakenLock lock(scratch.path(), notes.take());
      EXPECT_EQ(lock_in(scratch.path())["process"], ::getpid());
    }
    if (!waited_for) ::waitpid(child, nullptr, 0);
    ASSERT_EQ(notes.texts.size(), 1U);
    EXPECT_NE(notes.texts[0].find("process " + std::to_string(child)), std::string::npos)
        << notes.texts[0];
    EXPECT_TRUE(fs::is_empty(scratch.path()));
  }
}

TEST(RunLock, OfWhomNobodyCanAskTheFileIsWatched) {
  const Scratch scratch;
  write_lock(scratch.path(), lock_of_another(scratch.path(), {{"host", "node07"}, {"boot", "b"}}));
  // It gives a sign of life as soon as it is watched.
  try {
    const TakenLock lock(scratch.path(),
                         [&](const std::string& note) {
                           EXPECT_NE(note.find("node07"), std::string::npos) << note;
                           const struct timespec times[2] = {{1000, 0}, {1000, 0}};
                           ::utimensat(AT_FDCWD, scratch.path("lock").c_str(), times, 0);
                         },
                         {20ms, 60s, 1ms});
    ADD_FAILURE() << "two hold it";
  } catch (const IoError& error) {
    EXPECT_NE(std::string(error.what()).find("node07"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("remove this file"), std::string::npos);
  }
  // It gives none.
  Notes notes;
  const TakenLock lock(scratch.path(), notes.take(), {20ms, 100ms, 1ms});
  ASSERT_EQ(notes.texts.size(), 2U);
  EXPECT_NE(notes.texts[1].find("no sign of life"), std::string::npos) << notes.texts[1];
}

TEST(RunLock, FilesThatAreNoLocksAreWatchedToo) {
  for (const char* text : {"", "{\"format\": \"garonne.lock\", \"proc", "[[[", "{}", "5", "\xff"}) {
    const Scratch scratch;
    write_bytes(scratch.path("lock"), text);
    Notes notes;
    const TakenLock lock(scratch.path(), notes.take(), {10ms, 30ms, 1ms});
    EXPECT_EQ(notes.texts.size(), 2U) << text;
  }
  const Scratch scratch;
  fs::create_directory(scratch.path("lock"));
  EXPECT_THROW(TakenLock(scratch.path(), ignore), IoError);
}

TEST(RunLock, GivesSignsOfLife) {
  const Scratch scratch;
  const TakenLock lock(scratch.path(), ignore, {5ms, 60s, 1ms});
  const struct timespec long_ago[2] = {{1000, 0}, {1000, 0}};
  ::utimensat(AT_FDCWD, scratch.path("lock").c_str(), long_ago, 0);
  struct stat status {};
  for (int look = 0; look < 12'000 && (look == 0 || status.st_mtim.tv_sec == 1000); ++look) {
    std::this_thread::sleep_for(5ms);
    ::stat(scratch.path("lock").c_str(), &status);
  }
  EXPECT_NE(status.st_mtim.tv_sec, 1000);
}

TEST(RunLock, ARunThatLostItWritesNoMore) {
  const Scratch scratch;
  TakenLock lock(scratch.path(), ignore);
  lock.check();
  const nlohmann::json mine = lock_in(scratch.path());
  lock.expect_own();
  fs::remove(scratch.path("lock"));
  lock.expect_own();
  std::this_thread::sleep_for(1100ms);
  lock.check();
  EXPECT_EQ(lock_in(scratch.path()), mine) << "made again";
  nlohmann::json other = mine;
  other["token"] = "another";
  other["host"] = "node07";
  write_lock(scratch.path(), other);
  // At once, and without remembering it.
  expect_io_error(scratch.path(), "another run's", [&] { lock.expect_own(); });
  EXPECT_FALSE(lock.lost());
  std::this_thread::sleep_for(1100ms);
  expect_io_error(scratch.path("lock"), "node07", [&] { lock.check(); });
}

TEST(RunLock, AFolderThatHasGoneIsNamed) {
  const Scratch scratch;
  const std::string folder = scratch.path("run");
  TakenLock lock(folder, ignore);
  fs::rename(folder, scratch.path("renamed"));
  std::this_thread::sleep_for(1100ms);
  expect_io_error(folder, "was renamed, removed or unmounted", [&] { lock.check(); });
  fs::rename(scratch.path("renamed"), folder);
}

TEST(RunLock, IsLetGoBeforeAHastyEnd) {
  const Scratch scratch;
  TakenLock lock(scratch.path(), ignore);
  lock.let_go();
  EXPECT_TRUE(fs::is_empty(scratch.path()));
  std::this_thread::sleep_for(1100ms);
  lock.check();
  EXPECT_TRUE(fs::is_empty(scratch.path())) << "it is not made again";
  const TakenLock next(scratch.path(), ignore);
}

// Of many that start at once on the lock of a dead process, one works. `prepare` is run by each of
// them first.
void let_many_take_over(int rounds, const std::function<void()>& prepare) {
  constexpr int runners = 6;
  for (int round = 0; round < rounds; ++round) {
    const Scratch scratch;
    write_lock(scratch.path(), lock_of_another(scratch.path(), {{"process", 999'999'999}}));
    std::array<int, 2> start{};
    std::array<int, 2> answers{};
    std::array<int, 2> end{};
    ASSERT_EQ(::pipe(start.data()) + ::pipe(answers.data()) + ::pipe(end.data()), 0);
    std::vector<pid_t> children;
    for (int runner = 0; runner < runners; ++runner) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::close(start[1]);
        ::close(end[1]);
        char byte = 0;
        prepare();
        (void)!::read(start[0], &byte, 1);  // until the parent closes it
        try {
          const TakenLock lock(scratch.path(), ignore);
          (void)!::write(answers[1], "1", 1);
          (void)!::read(end[0], &byte, 1);
        } catch (const Error&) {
          (void)!::write(answers[1], "0", 1);
        }
        ::_exit(0);
      }
      children.push_back(child);
    }
    ::close(start[1]);
    int holders = 0;
    for (int runner = 0; runner < runners; ++runner) {
      char byte = 0;
      ASSERT_EQ(::read(answers[0], &byte, 1), 1);
      holders += byte == '1' ? 1 : 0;
    }
    EXPECT_EQ(holders, 1);
    ::close(end[1]);
    for (const pid_t child : children) ::waitpid(child, nullptr, 0);
    for (const int descriptor : {start[0], answers[0], answers[1], end[0]}) ::close(descriptor);
    EXPECT_TRUE(fs::is_empty(scratch.path()));
  }
}

TEST(RunLock, OneOfManyTakesOver) {
  let_many_take_over(15, [] {});
}

// As on a file system without hard links, in this process from now on: the kernel answers for it.
void refuse_links() {
  const auto answer = [](unsigned number) {
    return std::array{sock_filter(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1)),
                      sock_filter(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM))};
  };
  std::vector<sock_filter> filter = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  std::vector<unsigned> calls = {__NR_linkat};
#ifdef __NR_link
  calls.push_back(__NR_link);
#endif
  for (const unsigned call : calls)
    for (const sock_filter& part : answer(call)) filter.push_back(part);
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    ::_exit(9);
}

// Runs `work` in a process that cannot make links; its exit code.
int without_links(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    refuse_links();
    int code = 0;
    try {
      work();
    } catch (const Error& error) {
      code = static_cast<int>(error.code());
    }
    ::_exit(code + (testing::Test::HasFailure() ? 100 : 0));
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(RunLock, WorksWithoutHardLinks) {
  const Scratch scratch;
  EXPECT_EQ(without_links([&] {
              write_bytes(scratch.path("file"), "");
              EXPECT_EQ(::link(scratch.path("file").c_str(), scratch.path("link").c_str()), -1);
              EXPECT_EQ(errno, EPERM) << "not what this is to show";
              fs::remove(scratch.path("file"));
              {
                const TakenLock lock(scratch.path("run"), ignore);
                const auto json = lock_in(scratch.path("run"));
                EXPECT_EQ(json["process"], ::getpid());
                EXPECT_THROW(TakenLock(scratch.path("run"), ignore), IoError);
                EXPECT_EQ(lock_in(scratch.path("run")), json);
                std::vector<fs::path> left(fs::directory_iterator(scratch.path("run")),
                                           fs::directory_iterator());
                EXPECT_EQ(left.size(), 1U) << "nothing but the lock";
              }
              EXPECT_FALSE(fs::exists(scratch.path("run")));
            }),
            0);
  // Who has links, or has none, is held off by who has none, or has.
  const pid_t child = holding_child(scratch.path(), refuse_links);
  ASSERT_GT(child, 0);
  EXPECT_THROW(TakenLock(scratch.path(), ignore), IoError);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const TakenLock lock(scratch.path(), ignore);
  EXPECT_EQ(without_links([&] { const TakenLock second(scratch.path(), ignore); }),
            static_cast<int>(ExitCode::Data));
  EXPECT_EQ(lock_in(scratch.path())["process"], ::getpid());
}

TEST(RunLock, OneOfManyTakesOverWithoutHardLinks) {
  let_many_take_over(5, refuse_links);
}

TEST(RunLock, IsFound) {
  const Scratch scratch;
  EXPECT_FALSE(RunLock::find(scratch.path()).has_value());
  {
    const TakenLock lock(scratch.path(), ignore);
    const auto found = RunLock::find(scratch.path());
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->state, HolderState::Running);
    EXPECT_EQ(found->holder.process, ::getpid());
  }
  write_lock(scratch.path(), lock_of_another(scratch.path(), {{"process", 999'999'999}}));
  EXPECT_EQ(RunLock::find(scratch.path())->state, HolderState::Gone);
  write_lock(scratch.path(), lock_of_another(scratch.path(), {{"boot", "b"}, {"host", "node07"}}));
  EXPECT_EQ(RunLock::find(scratch.path())->state, HolderState::Unknown);
  write_bytes(scratch.path("lock"), "{");
  EXPECT_EQ(RunLock::find(scratch.path())->state, HolderState::Unknown);
}

// A process that is told to end while it takes the lock leaves none.
TEST(RunLock, IsNotTakenOnceItIsLetGo) {
  const Scratch scratch;
  {
    RunLock lock(scratch.path("a/b"), ignore);
    lock.let_go();
    lock.take();
    lock.check();
    EXPECT_FALSE(fs::exists(scratch.path("a")));
  }
  for (int round = 0; round < 20; ++round) {
    RunLock lock(scratch.path("a/b"), ignore);
    std::thread other([&] { lock.let_go(); });
    lock.take();
    other.join();
    EXPECT_FALSE(fs::exists(scratch.path("a")));
  }
}

}  // namespace
}  // namespace garonne::train::test
