#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "command.hpp"
#include "train/stop/stop_file.hpp"

namespace garonne::apps {
namespace {

struct StopOptions {
  std::string run_directory;
  bool wait = false;
  double timeout = 0;
};

ExitCode stop(const StopOptions& options) {
  train::ask_to_stop(options.run_directory);
  fmt::print(
      "{}: asked to stop; the step in progress is finished and a checkpoint written, then the run "
      "ends with exit code 75\n",
      options.run_directory);
  if (!options.wait) return ExitCode::Done;
  const auto start = std::chrono::steady_clock::now();
  while (train::is_asked_to_stop(options.run_directory)) {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (options.timeout > 0 && waited.count() > options.timeout) {
      train::forget_stop_request(options.run_directory);
      throw IoError(options.run_directory,
                    fmt::format("no run stopped there within {} s; is there one? The request is "
                                "withdrawn",
                                options.timeout));
    }
    // It may have ended for another reason, with the request unread.
    if (!train::may_be_running(options.run_directory))
      train::forget_stop_request(options.run_directory);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  train::await_parting(options.run_directory,
                       [](const std::string& text) { fmt::print("{}\n", text); });
  const auto step = train::stopped_step(options.run_directory);
  fmt::print("{}: {}\n", options.run_directory,
             step ? fmt::format("stopped after step {}", *step) : "the run has ended");
  return ExitCode::Done;
}

}  // namespace

void add_stop(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand(
      "stop", "ask the run in a run directory to finish its step, save and end; from any node");
  const auto options = std::make_shared<StopOptions>();
  command->add_option("run", options->run_directory, "run directory")->required();
  command->add_flag("--wait", options->wait, "return when the run has stopped");
  command->add_option("--timeout", options->timeout, "seconds to wait at most; 0 = no limit")
      ->check(CLI::NonNegativeNumber);
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "stop");
      return stop(*options);
    };
  });
}

}  // namespace garonne::apps
