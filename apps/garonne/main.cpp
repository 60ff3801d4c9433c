// The executable: reads the command line, runs one command, and turns every failure into one
// message and a documented exit code. This is the only place that catches.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <vector>

#include "base/printable.hpp"
#include "base/version.hpp"
#include "command.hpp"

namespace garonne::apps {
namespace {

// Option names of an application and of all its subcommands.
void collect_names(const CLI::App& app, std::vector<std::string>& options,
                   std::vector<std::string>& commands) {
  for (const CLI::Option* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) options.push_back("--" + name);
  }
  for (const CLI::App* command : app.get_subcommands({})) {
    commands.push_back(command->get_name());
    collect_names(*command, options, commands);
  }
}

// What CLI11 says, with the nearest known word for what it did not know.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& words) {
  std::string message = error.what();
  std::vector<std::string> options;
  std::vector<std::string> commands;
  collect_names(app, options, commands);
  // Of a mistyped command CLI11 only says that one is missing.
  if (!words.empty() && words[0].rfind("-", 0) != 0 &&
      std::find(commands.begin(), commands.end(), words[0]) == commands.end()) {
    message = words[0] + " is no command";
  }
  for (const auto& word : words) {
    const std::string name = word.substr(0, word.find('='));
    const bool option = name.rfind("--", 0) == 0;
    const auto& known = option ? options : commands;
    if (message.find(name) == std::string::npos ||
        std::find(known.begin(), known.end(), name) != known.end())
      continue;
    const std::string near = nearest_word(name, known);
    if (!near.empty()) message += fmt::format("; did you mean {}?", near);
  }
  return message + "; `garonne --help` shows what there is";
}

ExitCode run(int argc, char** argv, dist::Session& session) {
  CLI::App app("Trains models that do not fit: a program for every rank within a budget of bytes.",
               "garonne");
  app.footer(
      "Exit codes: 0 done, 2 usage, 3 no plan fits the budget, 4 communication, 5 data or "
      "checkpoint,\n"
      "6 refused while running, 75 stopped on request after a checkpoint, 128+n killed by signal "
      "n.");
  app.set_version_flag("--version", version_text);
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
  add_checkpoint(app, chosen);
  add_bench(app, chosen);
  add_solve(app, chosen);
  add_stop(app, chosen);
  bool done = false;
  session.agree([&] {
    try {
      app.parse(argc, argv);
    } catch (const CLI::Success& shown) {
      // --help and --version arrive as exceptions of the parser.
      if (session.rank() == 0) app.exit(shown);
      done = true;
    } catch (const CLI::ParseError& error) {
      throw ConfigError(usage_message(app, error, std::vector<std::string>(argv + 1, argv + argc)));
    }
  });
  return done ? ExitCode::Done : chosen.action(session);
}

// Made in place: a session cannot be moved.
struct SessionHolder {
  dist::Session session = dist::Session::start();
};

int report(dist::Session* session, ExitCode code, const char* message) {
  const std::string shown = printable_message(message);
  if (session != nullptr && session->size() > 1) session->abort(code, shown);
  fmt::print(stderr, "garonne: {}\n", shown);
  return static_cast<int>(code);
}

}  // namespace
}  // namespace garonne::apps

int main(int argc, char** argv) {
  using namespace garonne;
  // A file that grows past a limit shall come back as an error of the write, like a full disk.
  std::signal(SIGXFSZ, SIG_IGN);
  // Outlives the catch, so that what was thrown can still be told to the other ranks.
  std::unique_ptr<apps::SessionHolder> holder;
  dist::Session* session = nullptr;
  try {
    holder = std::make_unique<apps::SessionHolder>();
    session = &holder->session;
    return static_cast<int>(apps::run(argc, argv, *session));
  } catch (const dist::AgreedError& error) {
    std::fflush(stdout);
    if (session->rank() == 0) fmt::print(stderr, "garonne: {}\n", printable_message(error.what()));
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
