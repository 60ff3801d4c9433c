// What the command line asks of all ranks alike.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/build_id.hpp"
#include "command.hpp"

namespace garonne::apps {
namespace {

bool is_config_key(const CLI::Option& option) {
  const auto& keys = config_keys();
  return std::any_of(keys.begin(), keys.end(),
                     [&](const KeySpec& key) { return option.check_lname(key.name); });
}

void add_options(const CLI::App& app, std::string& command, dist::Facts& facts) {
  for (const CLI::Option* option : app.get_options()) {
    // Effective keys are compared as a whole (train/setup/rank_agreement.hpp), and what is named
    // without an option is a file or folder to read, of which the contents count.
    if (option->count() == 0 || option->get_positional() || is_config_key(*option)) continue;
    facts.push_back({command + " " + option->get_name(),
                     fmt::format("{}", fmt::join(option->results(), " ")),
                     dist::advise("give every rank the same options"), ""});
  }
  for (const CLI::App* chosen : app.get_subcommands()) {
    command += (command.empty() ? "" : " ") + chosen->get_name();
    add_options(*chosen, command, facts);
  }
}

}  // namespace

dist::Facts command_facts(const CLI::App& app, bool shows_help) {
  std::string command;
  dist::Facts options;
  add_options(app, command, options);
  if (shows_help) command += " (help)";
  dist::Facts facts = {
      {"the program", fmt::format("build {}", build_id()),
       dist::advise("install the same build of garonne on all nodes"), ""},
      {"the command", command, dist::advise("give every rank the same command"), ""}};
  dist::append(std::move(options), facts);
  return facts;
}

}  // namespace garonne::apps
