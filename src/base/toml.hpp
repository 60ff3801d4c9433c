// TOML files as a list of dotted keys: for formats other than the run file, which has its own table
// of keys.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace garonne {

struct TomlEntry {
  std::string key;  // dotted, as "link.inside_node.latency_seconds"
  // Lists are of numbers.
  std::variant<bool, std::int64_t, double, std::string, std::vector<double>> value;
  int line = 0;
};

// Every value of a TOML text, in the order of its lines. `name` is that of the file, for messages.
// Throws ConfigError: malformed (with line and column), dates, and arrays of anything but numbers.
std::vector<TomlEntry> parse_toml(const std::string& text, const std::string& name);

// Throws a ConfigError of the entry, with its value and line.
[[noreturn]] void refuse_entry(const TomlEntry& entry, const std::string& reason);

}  // namespace garonne
