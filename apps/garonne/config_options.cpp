#include <fmt/format.h>

#include "command.hpp"
#include "help.hpp"
#include "train/setup/config_choices.hpp"

namespace garonne::apps {

namespace {

// Every command that takes a run file has them as options.
const std::vector<KeySpec>& keys_of_options() {
  static const std::vector<KeySpec> keys = config_keys(train::config_choices());
  return keys;
}

// Keys that runs of language models have no use for: their help begins with whose they are.
bool is_of_operators(const KeySpec& key) {
  const std::size_t colon = key.help.find(':');
  const std::string kinds = colon == std::string::npos ? "" : key.help.substr(0, colon);
  return kinds.find("fno") != std::string::npos || kinds == "fields" ||
         kinds.find("operator") != std::string::npos;
}

std::string group_of(const KeySpec& key) {
  return fmt::format("Keys of [{}]{}", key.name.substr(0, key.name.find('.')),
                     is_of_operators(key) ? " for neural operators only" : "");
}

}  // namespace

std::shared_ptr<ConfigOptions> add_config_options(CLI::App& command, RunFile file) {
  auto options = std::make_shared<ConfigOptions>();
  command.add_option("config", options->path, "run file (TOML)")->required(file == RunFile::Needed);
  const RunConfig defaults;
  const bool listed = command.get_name() == command_that_lists_keys;
  const auto given = options->given;
  const auto add_key = [&](const KeySpec& key) {
    const std::string name = key.name;
    const std::string value = key.get(defaults);
    command
        .add_option_function<std::string>(
            "--" + name, [given, name](const std::string& text) { (*given)[name] = text; },
            fmt::format("{} [{}; default {}]", key.help, key.range, value.empty() ? "none" : value))
        ->group(listed ? group_of(key) : keys_listed_elsewhere)
        ->type_name("");
  };
  // In the order of their groups in help: what only operators have comes last.
  for (const bool of_operators : {false, true}) {
    for (const KeySpec& key : keys_of_options()) {
      if (is_of_operators(key) == of_operators) add_key(key);
    }
  }
  return options;
}

RunConfig ConfigOptions::load() const {
  return load_config(path, Overrides(given->begin(), given->end()), train::config_choices());
}

void expect_one_rank(const dist::Session& session, const std::string& command) {
  if (session.size() == 1) return;
  // On all ranks alike, so one of them says it.
  throw dist::AgreedError(
      ExitCode::Usage,
      fmt::format("`garonne {}` runs on one rank and {} were started; leave mpirun out", command,
                  session.size()));
}

}  // namespace garonne::apps
