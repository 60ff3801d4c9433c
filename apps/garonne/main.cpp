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
#include "exec/gpu_library.hpp"

namespace garonne::apps {
namespace {

// The subcommand that the words name, as far as they do.
const CLI::App& chosen_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const auto& word : words) {
    const auto named = command->get_subcommands(
        [&word](const CLI::App* candidate) { return candidate->get_name() == word; });
    if (named.empty()) break;
    command = named.front();
  }
  return *command;
}

// The nearest of what could stand there, or what ends in the same word, as --train.learning_rate
// for
// --optimizer.learning_rate; empty where nothing is near.
std::string suggestion(const CLI::App& command, const std::string& word) {
  std::vector<std::string> known;
  if (word.rfind("--", 0) != 0) {
    for (const CLI::App* sub : command.get_subcommands({})) known.push_back(sub->get_name());
    return nearest_word(word, known);
  }
  const auto last = [](const std::string& name) {
    return name.substr(name.find_last_of(".-") + 1);
  };
  std::string alike;
  for (const CLI::Option* option : command.get_options()) {
    for (const auto& name : option->get_lnames()) {
      known.push_back("--" + name);
      if (last(name) == last(word)) alike = known.back();
    }
  }
  if (std::find(known.begin(), known.end(), word) != known.end()) return "";
  const std::string near = nearest_word(word, known);
  return near.empty() ? alike : near;
}

// What CLI11 says, with the nearest known word for what it did not know.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& words) {
  std::string message = error.what();
  const CLI::App& command = chosen_command(app, words);
  const bool no_command = !words.empty() && words[0].rfind("-", 0) != 0 && &command == &app;
  // Of a mistyped command CLI11 only says that one is missing, and it names what is left over from
  // the last to the first.
  if (no_command) {
    message = words[0] + " is no command";
  } else if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    message = "not expected:";
    for (const std::string& left : app.remaining(true)) message += " " + printable(left);
  }
  for (const auto& word : words) {
    const std::string name = word.substr(0, word.find('='));
    if (message.find(name) == std::string::npos) continue;
    const std::string near = suggestion(command, name);
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
  add_forecast(app, chosen);
  add_check(app, chosen);
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
  dist::agree_on(session, [&] { return command_facts(app, done); });
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
  // Before anything has threads.
  exec::set_gpu_environment();
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
