#include "memory_options.hpp"

#include <utility>
#include <vector>

namespace garonne::apps {

std::shared_ptr<MemoryOptions> add_memory_options(CLI::App& command) {
  const std::vector<std::pair<std::string, std::string>> keys = {
      {"memory.budget", "hard limit for each rank; auto = what is free [that of the run]"},
      {"memory.host_budget",
       "hard limit for each rank on memory of the host beside that of a device, for parameters "
       "that memory.budget has no room for; auto = half of what is free [0 = none]"},
      {"memory.disk",
       "folder on a disk of the node, likewise: each pass reads them from there [none]"},
      {"memory.disk_budget", "hard limit for each rank on memory.disk [auto = what is free there]"},
  };
  auto options = std::make_shared<MemoryOptions>();
  for (const auto& [key, help] : keys) {
    const std::string name = key;
    command
        .add_option_function<std::string>(
            "--" + name, [options, name](const std::string& text) { options->set(name, text); },
            help)
        ->option_text(name == "memory.disk" ? "FOLDER" : "BYTES");
  }
  return options;
}

}  // namespace garonne::apps
