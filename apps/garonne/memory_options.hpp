// The keys memory.* of who runs a trained model forward, as options of a command.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>

#include "base/config.hpp"

namespace garonne::apps {

class MemoryOptions {
 public:
  // Those that were given.
  Overrides given() const { return {given_.begin(), given_.end()}; }
  void set(const std::string& key, const std::string& value) { given_[key] = value; }

 private:
  std::map<std::string, std::string> given_;
};

std::shared_ptr<MemoryOptions> add_memory_options(CLI::App& command);

}  // namespace garonne::apps
