#include "base/config.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>

#include "base/bytes.hpp"
#include "base/edit_distance.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/multiples.hpp"
#include "base/names_elsewhere.hpp"
#include "base/toml_limits.hpp"

namespace garonne {
namespace {

using Keys = std::vector<KeySpec>;

// What is meant by a name that is no key; empty: nothing is near.
std::string near_key(const std::string& name, const std::vector<std::string>& names) {
  const std::string usual = name_of_elsewhere(name);
  if (std::find(names.begin(), names.end(), usual) != names.end()) return usual;
  const std::string near = nearest_word(name, names);
  if (!near.empty()) return near;
  // The right key in the wrong section.
  const auto leaf = [](const std::string& dotted) { return dotted.substr(dotted.rfind('.') + 1); };
  std::string alike;
  for (const auto& candidate : names) {
    if (leaf(candidate) == leaf(name)) alike = candidate;
  }
  return alike;
}

const KeySpec& known_key(const Keys& keys, const std::string& name) {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const KeySpec& key) { return key.name == name; });
  if (found != keys.end()) return *found;
  std::vector<std::string> names;
  for (const auto& key : keys) names.push_back(key.name);
  const std::string near = near_key(name, names);
  throw ConfigError(name, "",
                    near.empty() ? "unknown key; `garonne train --help` lists all keys"
                                 : fmt::format("unknown key; did you mean {}?", near));
}

const char* type_name(KeyType type) {
  switch (type) {
    case KeyType::Text:
      return "text";
    case KeyType::Integer:
      return "an integer";
    case KeyType::Real:
      return "a number";
    case KeyType::Bytes:
      return "a number of bytes such as 600MiB";
    case KeyType::Switch:
      return "true or false";
    case KeyType::List:
      return "a list of integers such as [16, 16]";
    case KeyType::Names:
      return "a list of names such as [\"one\", \"other\"], or \"auto\"";
  }
  return "";
}

// "16,16" of [16, 16]; empty of what is no list of `Element`s.
template <typename Element>
std::optional<std::string> list_text(const toml::node& node) {
  const toml::array* array = node.as_array();
  if (array == nullptr) return std::nullopt;
  std::vector<Element> elements;
  for (const auto& element : *array) {
    const auto* value = element.template as<Element>();
    if (value == nullptr) return std::nullopt;
    elements.push_back(value->get());
  }
  return fmt::format("{}", fmt::join(elements, ","));
}

// What a TOML value says, as text that KeySpec::set reads; the type must be the key's.
std::string toml_text(const KeySpec& key, const toml::node& node) {
  std::ostringstream shown;
  node.visit([&](const auto& value) {
    if constexpr (toml::is_value<decltype(value)>) shown << value.get();
  });
  if (node.is_boolean() && key.type == KeyType::Switch)
    return node.as_boolean()->get() ? "true" : "false";
  if (key.type == KeyType::List) {
    if (const auto numbers = list_text<std::int64_t>(node)) return *numbers;
  }
  if (key.type == KeyType::Names) {
    // An empty list would mean what "auto" means.
    const auto names = list_text<std::string>(node);
    if (names && !names->empty()) return *names;
  }
  const bool integer = node.is_integer();
  const bool text = node.is_string();
  const bool fits = key.type == KeyType::Switch || key.type == KeyType::List  ? false
                    : key.type == KeyType::Text || key.type == KeyType::Names ? text
                    : key.type == KeyType::Integer                            ? integer
                    : key.type == KeyType::Real ? integer || node.is_floating_point()
                                                : integer || text;
  if (!fits) {
    throw ConfigError(
        key.name, shown.str(),
        fmt::format("must be {} (line {})", type_name(key.type), node.source().begin.line));
  }
  // A float printed by a stream loses digits.
  if (node.is_floating_point()) return fmt::format("{}", node.as_floating_point()->get());
  return shown.str();
}

void read_table(const toml::table& table, const std::string& prefix, const Keys& keys,
                RunConfig& config) {
  for (const auto& [name, node] : table) {
    const std::string dotted = prefix + std::string(name.str());
    if (const auto* inner = node.as_table()) {
      read_table(*inner, dotted + ".", keys, config);
    } else {
      const KeySpec& key = known_key(keys, dotted);
      key.set(config, toml_text(key, node));
    }
  }
}

void check_together(const RunConfig& config) {
  constexpr const char* with_decay = "warmup-stable-decay";
  if (config.optimizer.decay_steps > 0 && config.optimizer.schedule != with_decay) {
    throw ConfigError("optimizer.decay_steps", fmt::format("{}", config.optimizer.decay_steps),
                      fmt::format("is of optimizer.schedule = \"{}\", and here it is \"{}\"; set "
                                  "that, or leave it out",
                                  with_decay, config.optimizer.schedule));
  }
  // A constant rate has no minimum.
  if (config.optimizer.schedule != "constant" &&
      config.optimizer.minimum_learning_rate > config.optimizer.learning_rate) {
    throw ConfigError(
        "optimizer.minimum_learning_rate",
        fmt::format("{}", config.optimizer.minimum_learning_rate),
        fmt::format("is above optimizer.learning_rate = {0}; give both, as a minimum of {1} or 0",
                    config.optimizer.learning_rate, config.optimizer.learning_rate / 10));
  }
}

}  // namespace

RunConfig parse_config(const std::string& toml_text, const std::string& name,
                       const Overrides& overrides, const Choices& choices) {
  check_toml_limits(toml_text, name);
  toml::table table;
  try {
    table = toml::parse(toml_text, name);
  } catch (const toml::parse_error& error) {
    throw ConfigError(fmt::format("{}:{}:{}: {}", name, error.source().begin.line,
                                  error.source().begin.column, error.description()));
  }
  const Keys keys = config_keys(choices);
  RunConfig config;
  read_table(table, "", keys, config);
  std::set<std::string> seen;
  for (const auto& [key, value] : overrides) {
    if (!seen.insert(key).second)
      throw ConfigError(key, value, "is given twice on the command line");
    known_key(keys, key).set(config, value);
  }
  check_together(config);
  return config;
}

RunConfig load_config(const std::string& path, const Overrides& overrides, const Choices& choices) {
  return parse_config(read_given_file(path, "give the path of a run file (TOML)", most_toml_bytes),
                      path, overrides, choices);
}

std::string config_to_toml(const RunConfig& config) {
  std::string text;
  std::string section;
  for (const auto& key : config_keys()) {
    const auto dot = key.name.find('.');
    if (key.name.substr(0, dot) != section) {
      section = key.name.substr(0, dot);
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", section);
    }
    const std::string value = key.get(config);
    const bool quoted = key.type == KeyType::Text || value == "auto";
    std::string escaped;
    for (const char character : value) {
      const auto code = static_cast<unsigned char>(character);
      if (code < 0x20 || code == 0x7F) {
        escaped += fmt::format("\\u{:04X}", code);
        continue;
      }
      if (character == '"' || character == '\\') escaped += '\\';
      escaped += character;
    }
    if (key.type == KeyType::List) {
      text += fmt::format("{} = [{}]\n", key.name.substr(dot + 1), value);
      continue;
    }
    if (key.type == KeyType::Names && value != "auto") {
      std::string names = escaped;
      for (std::size_t at = 0; (at = names.find(',', at)) != std::string::npos; at += 4)
        names.replace(at, 1, "\", \"");
      text += fmt::format("{} = [\"{}\"]\n", key.name.substr(dot + 1), names);
      continue;
    }
    text += quoted ? fmt::format("{} = \"{}\"\n", key.name.substr(dot + 1), escaped)
                   : fmt::format("{} = {}\n", key.name.substr(dot + 1), value);
  }
  return text;
}

std::vector<std::string> changed_keys(const RunConfig& a, const RunConfig& b) {
  std::vector<std::string> changed;
  for (const auto& key : config_keys()) {
    if (key.get(a) != key.get(b)) changed.push_back(key.name);
  }
  return changed;
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& known) {
  constexpr std::size_t most_mistyped_bytes = 100;
  // No mistyping of a word; and the distances would take their time.
  if (word.size() > most_mistyped_bytes) return "";
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 4) + 1;
  for (const auto& candidate : known) {
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::int64_t micro_batches_per_rank(const RunConfig& config) {
  const std::int64_t at_once = config.grid.data * config.train.micro_batch;
  if (config.train.global_batch % at_once != 0) {
    throw ConfigError(
        "train.global_batch", fmt::format("{}", config.train.global_batch),
        fmt::format("does not divide into grid.data = {} ranks of micro-batches of {} samples; {}",
                    config.grid.data, config.train.micro_batch,
                    nearest_multiples(config.train.global_batch, at_once)));
  }
  return config.train.global_batch / at_once;
}

}  // namespace garonne
