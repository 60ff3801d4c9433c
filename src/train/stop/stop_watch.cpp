#include "train/stop/stop_watch.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "base/blocked_signals.hpp"
#include "base/error.hpp"
#include "train/checkpoint/checkpoint.hpp"
#include "train/stop/stop_file.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds look_every{10};
// File systems are asked less often: on some of them that costs a message.
constexpr milliseconds look_at_file_every{500};
// Of ranks that save without their launcher, for one that has not been heard of.
constexpr std::chrono::minutes patience{5};

// Of this start of the run and no other; rank 0's on all ranks.
std::string make_token(dist::Session& session) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return session.broadcast(fmt::format("{:x}-{}", now.count(), getpid()));
}

std::int64_t bytes_in(const std::string& folder) {
  std::int64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    bytes += 1 + static_cast<std::int64_t>(entry.file_size(error));
  return bytes;
}

// Leaves the launcher's reach: it kills process groups, and waits for the pipes it reads from.
// Closes all descriptors but the standard ones and those of `keep`.
void detach_from_launcher(std::vector<int> keep) {
  for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGPIPE}) std::signal(signal, SIG_IGN);
  setsid();
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int standard = 0; standard < 3; ++standard) dup2(nothing, standard);
  std::sort(keep.begin(), keep.end());
  int first = 3;
  for (const int kept : keep) {
    if (kept > first) close_range(static_cast<unsigned>(first), static_cast<unsigned>(kept - 1), 0);
    first = std::max(first, kept + 1);
  }
  close_range(static_cast<unsigned>(first), ~0U, 0);
}

// A descriptor's text up to its end.
std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 4096> piece{};
  for (;;) {
    const ssize_t count = read(descriptor, piece.data(), piece.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(piece.data(), static_cast<std::size_t>(count));
  }
}

struct Failure {
  ExitCode code;
  std::string text;
};

// Runs `work` in a process with a copy of this one's memory that outlives the launcher, and waits
// for its end, which a launcher may not let this process see. `uses`: descriptors of the work. None
// where all went well.
std::optional<Failure> run_beyond_launcher(std::vector<int> uses,
                                           const std::function<void()>& work) {
  std::array<int, 2> pipe{};
  expect(::pipe2(pipe.data(), O_CLOEXEC) == 0, "no pipe could be made");
  const pid_t child = fork();
  if (child == 0) {
    uses.push_back(pipe[1]);
    detach_from_launcher(std::move(uses));
    std::string failure;
    // The end of this process: nothing is above that could catch.
    try {
      work();
    } catch (const std::exception& error) {
      failure = error.what();
    }
    const ssize_t written = write(pipe[1], failure.data(), failure.size());
    _exit(failure.empty() && written == 0 ? 0 : static_cast<int>(ExitCode::Data));
  }
  close(pipe[1]);
  if (child < 0) {
    close(pipe[0]);
    return Failure{ExitCode::Other, "no process was made"};
  }
  const std::string failure = read_all(pipe[0]);
  close(pipe[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return std::nullopt;
  if (WIFSIGNALED(status))
    return Failure{ExitCode::Data,
                   fmt::format("its process was ended by signal {}", WTERMSIG(status))};
  return Failure{ExitCode::Data, failure};
}

}  // namespace

StopWatch::StopWatch(dist::Session& session, std::string run_directory, std::function<void()> leave)
    : session_(session),
      run_directory_(std::move(run_directory)),
      leave_(std::move(leave)),
      token_(make_token(session)),
      signals_(session.uses_mpi()),
      side_(session) {
  thread_ = std::thread([this] {
    block_all_signals();
    watch();
  });
}

StopWatch::~StopWatch() {
  ending_ = true;
  if (thread_.joinable()) thread_.join();
}

std::string StopWatch::how_to_stop() const {
  return fmt::format("to stop   Ctrl-C, {}, or `garonne stop {}`\n",
                     session_.uses_mpi() ? std::string("USR1 to the launcher (exit code 75)")
                                         : fmt::format("TERM to process {}", getpid()),
                     run_directory_);
}

void StopWatch::watch_directory() {
  if (session_.rank() != 0) return;
  forget_stop_request(run_directory_);
  watches_directory_ = true;
}

void StopWatch::begin_training(WatchedTraining training) {
  training_ = std::move(training);
  gate_ = std::make_unique<StepGate>(training_.first_step);
  in_training_ = true;
}

void StopWatch::end_training() {
  retiring_ = true;
  thread_.join();
}

// Without waiting: a launcher that ends its ranks reads their output no more, and the loop may be
// held in the midst of a line then.
void StopWatch::say(const std::string& text) const {
  if (session_.rank() != 0) return;
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  if (::poll(&output, 1, 0) != 1 || (output.revents & POLLOUT) == 0) return;
  if (ftrylockfile(stdout) == 0) {
    std::fflush(stdout);
    funlockfile(stdout);
  }
  if (write(STDOUT_FILENO, text.data(), text.size()) < 0) return;  // nobody is there to be told
}

void StopWatch::end_process(ExitCode code, const std::string& text) {
  say(text);
  if (watches_directory_) forget_stop_request(run_directory_);
  leave_();
  // Without the end of MPI, for which the others might have to be waited for.
  _exit(static_cast<int>(code));
}

// The launcher leaves this process a second, which two waits for a busy disk may take. Who starts
// the run again meanwhile waits for the folder of the meeting.
void StopWatch::note_where_it_stopped(std::int64_t step) const {
  if (session_.rank() != 0) return;
  const auto failure = run_beyond_launcher({}, [&] {
    const std::string meeting_folder = parting_folder(run_directory_, step, token_);
    FileMeeting meeting(meeting_folder, 0, 1, patience, [] { return 0; });
    auto pulse = std::make_unique<PartingPulse>(meeting_folder);
    std::exception_ptr thrown;
    try {
      if (training_.expect_own_directory) training_.expect_own_directory();
      note_stopped(run_directory_, step);
    } catch (...) {
      thrown = std::current_exception();
    }
    pulse.reset();
    meeting.leave();
    if (thrown) std::rethrow_exception(thrown);
  });
  if (failure) say(fmt::format("warning: {}\n", failure->text));  // the state itself is saved
}

void StopWatch::watch() {
  auto file_looked_at = Clock::time_point{};
  while (!ending_) {
    if (watches_directory_ && Clock::now() - file_looked_at >= look_at_file_every) {
      file_looked_at = Clock::now();
      if (is_asked_to_stop(run_directory_)) requested_ = true;
    }
    const StopRequest request = signals_.request();
    if (request != StopRequest::None) requested_ = true;
    if (requested_ && !in_training_) {
      end_process(ExitCode::Requeue,
                  "stopped before training began; nothing was lost (exit code 75)\n");
    }
    const bool urgent = request == StopRequest::AtOnce && in_training_ && training_.save;
    if (in_training_ && (urgent || retiring_)) {
      const auto told = side_.all_gather(urgent ? 1 : 0, [this] { return ending_.load(); });
      // Where not all were told to end, the loop stops after the step.
      if (!told || std::find(told->begin(), told->end(), 0) != told->end()) return;
      return part();
    }
    std::this_thread::sleep_for(look_every);
  }
}

void StopWatch::part() {
  const auto never = [] { return false; };
  const std::int64_t entered = gate_->close();
  const auto begun = side_.all_gather(entered, never);
  const std::int64_t step = *std::max_element(begun->begin(), begun->end());
  gate_->allow(step);
  if (!gate_->freeze_after(step)) return;  // the error that ended it ends the run
  const ExitCode code = step >= training_.last_step ? ExitCode::Done : ExitCode::Requeue;
  const auto saved = side_.all_gather(training_.saved_step(), never);
  if (*std::min_element(saved->begin(), saved->end()) >= step) {
    // A run that never saved has no checkpoint that it could have stopped after.
    if (step > 0 && code == ExitCode::Requeue) note_where_it_stopped(step);
    end_process(code, fmt::format("stopped; {}\n",
                                  step == training_.first_step
                                      ? "no further step was finished"
                                      : fmt::format("the state after step {} is saved", step)));
  }
  say(fmt::format(
      "stopping: the state after step {} is being saved, which goes on without the launcher\n",
      step));
  if (training_.abandon) training_.abandon();
  const auto failure = run_beyond_launcher(training_.save_uses, [&] {
    const std::string folder = parting_folder(run_directory_, step, token_);
    const std::string partial =
        fmt::format("{}/checkpoints/.partial-step-{}{}", run_directory_, step, parting_suffix);
    FileMeeting meeting(folder, session_.rank(), session_.size(), patience,
                        [=] { return bytes_in(folder) + bytes_in(partial); });
    std::unique_ptr<PartingPulse> pulse;
    if (session_.rank() == 0) pulse = std::make_unique<PartingPulse>(folder);
    meeting.phase([&] {
      if (training_.expect_own_directory) training_.expect_own_directory();
    });
    training_.save(step, meeting);
    if (session_.rank() == 0) remove_begun(run_directory_);
    if (session_.rank() == 0 && code == ExitCode::Requeue) note_stopped(run_directory_, step);
    pulse.reset();
    meeting.leave();
  });
  if (failure) {
    end_process(failure->code, fmt::format("the state after step {} could not be saved: {}\n", step,
                                           failure->text));
  }
  end_process(code, fmt::format("stopped; the state after step {} is saved\n", step));
}

}  // namespace garonne::train
