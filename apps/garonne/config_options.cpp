#include <fmt/format.h>

#include "command.hpp"
#include "train/setup/config_choices.hpp"

namespace garonne::apps {

namespace {

// Every command that takes a run file has them as options.
const std::vector<KeySpec>& keys_of_options() {
  static const std::vector<KeySpec> keys = config_keys(train::config_choices());
  return keys;
}

// The section of the key; what only one kind of model has stands by itself, behind it.
std::string group_of(const KeySpec& key) {
  const std::string section = key.name.substr(0, key.name.find('.'));
  const std::size_t colon = key.help.find(':');
  const std::string kinds = colon == std::string::npos ? "" : key.help.substr(0, colon);
  const bool of_fields = kinds.find("fno") != std::string::npos || kinds == "fields" ||
                         kinds.find("operator") != std::string::npos;
  return of_fields ? section + ", of neural operators and fields" : section;
}

}  // namespace

std::shared_ptr<ConfigOptions> add_config_options(CLI::App& command) {
  auto options = std::make_shared<ConfigOptions>();
  command.add_option("config", options->path, "run file (TOML)")->required();
  const RunConfig defaults;
  for (const auto& key : keys_of_options()) {
    const auto given = options->given;
    const std::string name = key.name;
    const std::string help =
        fmt::format("{} [{}; default {}]", key.help, key.range, key.get(defaults));
    command
        .add_option_function<std::string>(
            "--" + name, [given, name](const std::string& value) { (*given)[name] = value; }, help)
        ->group(group_of(key))
        ->type_name("");
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
