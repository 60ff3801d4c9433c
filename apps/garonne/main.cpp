// The executable: reads the command line, runs one command, and turns every failure into one
// message and a documented exit code. This is the only place that catches.

#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/printable.hpp"
#include "base/version.hpp"
#include "command.hpp"
#include "counts.hpp"
#include "examples.hpp"
#include "exec/gpu_library.hpp"
#include "help.hpp"
#include "usage.hpp"

namespace garonne::apps {
namespace {

ExitCode run(int argc, char** argv, dist::Session& session) {
  CLI::App app(
      "Trains language models (GPT, Llama) and neural operators of fields (FNO, TFNO, UFNO, AFNO, "
      "SFNO) on processors and GPUs, within a budget of bytes that holds: a program for every "
      "rank, "
      "planned and proved before anything runs.",
      "garonne");
  app.formatter(help_formatter());
  app.set_help_flag("-h,--help", "show this help and end");
  app.set_version_flag("--version", version_text, "say which build this is and end");
  app.require_subcommand(1);
  // Whoever adds to a command that a script makes up wins; commands take this over.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  Chosen chosen;
  add_train(app, chosen);
  add_plan(app, chosen);
  add_profile(app, chosen);
  add_simulate(app, chosen);
  add_data(app, chosen);
  add_report(app, chosen);
  add_eval(app, chosen);
  add_forecast(app, chosen);
  add_check(app, chosen);
  add_checkpoint(app, chosen);
  add_bench(app, chosen);
  add_solve(app, chosen);
  add_stop(app, chosen);
  add_examples(app);
  expect_finite_numbers(app);
  // Commands would have taken it over.
  app.footer(
      "`garonne COMMAND --help`, or `garonne help COMMAND`, says more of a command.\n\n"
      "Exit codes: 0 done, 2 usage, 3 no plan fits the budget, 4 communication, 5 data or "
      "checkpoint, 6 refused while running, 75 stopped on request after a checkpoint, 128+n killed "
      "by signal n.\n\n"
      "Examples:\n"
      "  garonne data text corpus.txt --tokenizer tokenizer.json --output corpus.h5\n"
      "  garonne plan run.toml --ranks 8\n"
      "  mpirun -n 2 garonne train run.toml --grid.data 2 --memory.budget 4GiB\n"
      "  garonne eval runs/first --generate \"Once upon a time\"\n"
      "  garonne report runs/first");
  bool done = false;
  session.agree([&] {
    std::vector<std::string> words(argv + 1, argv + argc);
    if (!words.empty() && words.front() == "help") {
      words.erase(words.begin());
      const std::string unknown = unknown_help(app, words);
      if (!unknown.empty()) throw ConfigError(unknown);
      words.emplace_back("--help");
    }
    try {
      if (words.empty()) throw CLI::CallForHelp();
      // The parser takes them from the last to the first.
      app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
    } catch (const CLI::Success& shown) {
      // --help and --version arrive as exceptions of the parser.
      if (session.rank() == 0) app.exit(shown);
      done = true;
    } catch (const CLI::ParseError& error) {
      throw ConfigError(usage_message(app, error, words));
    }
  });
  dist::agree_on(session, [&] { return command_facts(app, done); });
  return done ? ExitCode::Done : chosen.action(session);
}

// Made in place: a session cannot be moved.
struct SessionHolder {
  dist::Session session = dist::Session::start();
};

// Whether anybody reads it or not.
void say_on_stderr(const std::string& text) {
  std::fputs(("garonne: " + text + "\n").c_str(), stderr);
}

int report(dist::Session* session, ExitCode code, const char* message) {
  const std::string shown = printable_message(message);
  if (session != nullptr && session->size() > 1) session->abort(code, shown);
  say_on_stderr(shown);
  return static_cast<int>(code);
}

}  // namespace
}  // namespace garonne::apps

int main(int argc, char** argv) {
  using namespace garonne;
  // A file that grows past a limit shall come back as an error of the write, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  // Before anything has threads.
  exec::set_gpu_environment();
  // Outlives the catch, so that what was thrown can still be told to the other ranks.
  std::unique_ptr<apps::SessionHolder> holder;
  dist::Session* session = nullptr;
  try {
    holder = std::make_unique<apps::SessionHolder>();
    session = &holder->session;
    const ExitCode code = apps::run(argc, argv, *session);
    // Here, where a wait for somebody who does not come can still end in an error.
    session->barrier();
    return static_cast<int>(code);
  } catch (const dist::AgreedError& error) {
    std::fflush(stdout);
    if (session->rank() == 0) apps::say_on_stderr(printable_message(error.what()));
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    std::fflush(stdout);
    return apps::report(session, error.code(), error.what());
  } catch (const std::exception& error) {
    std::fflush(stdout);
    // The tensor library puts a stack of addresses behind its messages, which says nothing to a
    // user.
    const std::string message = error.what();
    return apps::report(session, ExitCode::Other,
                        message.substr(0, message.find("\nException raised from")).c_str());
  }
}
