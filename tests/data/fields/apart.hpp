// Runs an action in a process of its own and tells how that ended: a crash, an endless loop and
// memory without bound are then outcomes like any other.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <exception>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

#include "base/error.hpp"

namespace garonne::data::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Shadow, red zones and what is kept after it was freed.
inline constexpr std::int64_t sanitizer_bytes = std::int64_t{1} << 30;
#else
inline constexpr std::int64_t sanitizer_bytes = 0;
#endif

struct Outcome {
  int code = -1;   // the exit code of the program for such an end; 1 = none of its own
  int signal = 0;  // that ended it
  bool out_of_time = false;
  std::int64_t grown_bytes = 0;  // most resident memory beyond that at the start
  std::string message;           // of the error
};

namespace detail {

inline std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t whole = 0;
  std::int64_t resident = 0;
  file >> whole >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

inline int run(const std::function<void()>& action, std::string& message) {
  try {
    action();
    return 0;
  } catch (const Error& error) {
    message = error.what();
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    message = error.what();
    return 1;
  }
}

}  // namespace detail

// For a process without threads and without MPI.
inline Outcome run_apart(const std::function<void()>& action, double seconds = 20) {
  int ends[2] = {};
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    const std::int64_t before = detail::resident_bytes();
    std::string message;
    const int code = detail::run(action, message);
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    const std::int64_t grown = usage.ru_maxrss * 1024 - before;
    message = message.substr(0, 32768);  // fits the pipe
    if (write(ends[1], &grown, sizeof grown) != sizeof grown) _exit(99);
    if (write(ends[1], message.data(), message.size()) < 0) _exit(99);
    _exit(code);
  }
  close(ends[1]);
  Outcome outcome;
  int status = 0;
  const auto begin = std::chrono::steady_clock::now();
  while (waitpid(child, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
    if (passed.count() < seconds) continue;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    outcome.out_of_time = true;
    break;
  }
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  if (read(ends[0], &outcome.grown_bytes, sizeof outcome.grown_bytes) > 0) {
    char piece[4096];
    ssize_t got = 0;
    while ((got = read(ends[0], piece, sizeof piece)) > 0) {
      outcome.message.append(piece, static_cast<std::size_t>(got));
    }
  }
  close(ends[0]);
  return outcome;
}

// Whether it ended as reading a file of others may: well, or with one short message and a
// documented code, within `most_bytes` of memory.
inline ::testing::AssertionResult ended_well(const Outcome& outcome, std::int64_t most_bytes) {
  if (outcome.out_of_time) return ::testing::AssertionFailure() << "found no end";
  if (outcome.signal != 0) {
    return ::testing::AssertionFailure() << "crashed with signal " << outcome.signal;
  }
  if (outcome.code != 0 && outcome.code != 2 && outcome.code != 5) {
    return ::testing::AssertionFailure() << "code " << outcome.code << ": " << outcome.message;
  }
  if (outcome.grown_bytes > most_bytes + sanitizer_bytes) {
    return ::testing::AssertionFailure()
           << "took " << outcome.grown_bytes << " bytes: " << outcome.message;
  }
  if (outcome.message.size() > 2000) {
    return ::testing::AssertionFailure() << "a message of " << outcome.message.size() << " bytes";
  }
  for (const char letter : outcome.message) {
    if (static_cast<unsigned char>(letter) < 0x20 && letter != '\n') {
      return ::testing::AssertionFailure() << "control characters in the message";
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace garonne::data::testing
