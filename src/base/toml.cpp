#include "base/toml.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/toml_limits.hpp"

namespace garonne {
namespace {

// None of what is no list of numbers.
std::optional<std::vector<double>> numbers_of(const toml::node& node) {
  const toml::array* list = node.as_array();
  if (list == nullptr) return std::nullopt;
  std::vector<double> numbers;
  for (const toml::node& element : *list) {
    if (!element.is_number()) return std::nullopt;
    numbers.push_back(element.value<double>().value_or(0));
  }
  return numbers;
}

void read_table(const toml::table& table, const std::string& name, const std::string& prefix,
                std::vector<TomlEntry>& entries) {
  for (const auto& [key, node] : table) {
    const std::string dotted = prefix + std::string(key.str());
    if (const auto* inner = node.as_table()) {
      read_table(*inner, name, dotted + ".", entries);
      continue;
    }
    TomlEntry entry{dotted, false, static_cast<int>(node.source().begin.line)};
    if (node.is_boolean()) {
      entry.value = node.as_boolean()->get();
    } else if (node.is_integer()) {
      entry.value = node.as_integer()->get();
    } else if (node.is_floating_point()) {
      entry.value = node.as_floating_point()->get();
    } else if (node.is_string()) {
      entry.value = node.as_string()->get();
    } else if (auto numbers = numbers_of(node)) {
      entry.value = std::move(*numbers);
    } else {
      throw ConfigError(dotted, "",
                        fmt::format("must be text, a number, a list of numbers, true or false "
                                    "({}:{})",
                                    name, entry.line));
    }
    entries.push_back(std::move(entry));
  }
}

}  // namespace

std::vector<TomlEntry> parse_toml(const std::string& text, const std::string& name) {
  std::vector<TomlEntry> entries;
  check_toml_limits(text, name);
  try {
    read_table(toml::parse(text, name), name, "", entries);
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}:{}:{}: {}", name, error.source().begin.line,
                                  error.source().begin.column, error.description()));
  }
  std::stable_sort(entries.begin(), entries.end(),
                   [](const TomlEntry& a, const TomlEntry& b) { return a.line < b.line; });
  return entries;
}

void refuse_entry(const TomlEntry& entry, const std::string& reason) {
  const std::string shown =
      std::visit([](const auto& value) { return fmt::format("{}", value); }, entry.value);
  throw ConfigError(entry.key, shown, fmt::format("{} (line {})", reason, entry.line));
}

}  // namespace garonne
