#include "usage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/bytes.hpp"
#include "base/config.hpp"
#include "base/edit_distance.hpp"
#include "base/names_elsewhere.hpp"
#include "base/printable.hpp"
#include "counts.hpp"
#include "help.hpp"

namespace garonne::apps {
namespace {

struct NamedCommand {
  const CLI::App* app;
  std::string path;       // as "garonne data text"
  std::size_t words = 0;  // of the command line that name it
};

// The command that the words name, as far as they do.
NamedCommand chosen_command(const CLI::App& app, const std::vector<std::string>& words) {
  NamedCommand chosen{&app, app.get_name()};
  for (const auto& word : words) {
    const auto named = chosen.app->get_subcommands(
        [&word](const CLI::App* candidate) { return candidate->get_name() == word; });
    if (named.empty()) break;
    chosen = {named.front(), chosen.path + " " + word, chosen.words + 1};
  }
  return chosen;
}

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

bool is_option(const std::string& word) {
  return word.starts_with('-');
}

std::string name_without_dashes(const std::string& option) {
  return option.substr(std::min(option.find_first_not_of('-'), option.size()));
}

// "learning_rate" of "--optimizer.learning_rate", all of a name without a dot.
std::string last_part(const std::string& name) {
  return name.substr(name.rfind('.') + 1);
}

// Of `names` the one whose last part is nearest to `word`, where few letters are wrong; of equals
// the last.
std::string nearest_by_last_part(const std::string& word, const std::vector<std::string>& names) {
  std::string best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 4);
  for (const std::string& name : names) {
    const std::size_t distance = edit_distance(word, last_part(name));
    if (distance > best_distance) continue;
    best_distance = distance;
    best = name;
  }
  return best;
}

// The option that is meant by one that there is not; empty where nothing is near. Options of the
// command itself come before keys of run files: --rank is --ranks before it is --model.rank.
std::string meant_option(const CLI::App& command, const std::string& given) {
  const std::string word = name_without_dashes(given);
  std::vector<std::string> all;
  std::vector<std::string> plain;
  std::vector<std::string> dotted;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      all.push_back(name);
      (name.find('.') == std::string::npos ? plain : dotted).push_back(name);
    }
  }
  const std::string usual = name_of_elsewhere(word);
  if (std::find(all.begin(), all.end(), usual) != all.end()) return "--" + usual;
  std::string near;
  constexpr std::size_t most_mistyped_bytes = 100;
  if (word.size() > most_mistyped_bytes) return "";
  if (word.find('.') == std::string::npos) {
    near = nearest_by_last_part(word, plain);
    if (near.empty()) near = nearest_by_last_part(word, dotted);
  } else {
    // The right key in the wrong section.
    for (const std::string& name : dotted) {
      if (last_part(name) == last_part(word)) near = name;
    }
  }
  if (near.empty()) near = nearest_word(word, all);
  return near.empty() ? "" : "--" + near;
}

std::string did_you_mean(const std::string& meant) {
  return meant.empty() ? "" : fmt::format("; did you mean {}?", meant);
}

std::string unknown_command(const CLI::App& app, const NamedCommand& chosen,
                            const std::string& word) {
  const std::string whose = chosen.app == &app ? "" : fmt::format(" of `{}`", chosen.path);
  return fmt::format("{} is no command{}", printable(word), whose) +
         did_you_mean(nearest_word(word, names_of_commands(*chosen.app)));
}

// "--memory.budget 40GB" of "--memory.budget 40 GB"; empty: there is nothing like that.
std::string parted_bytes(const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& number = words[i - 1];
    const bool starts_with_letter =
        !words[i].empty() && std::isalpha(static_cast<unsigned char>(words[i][0])) != 0;
    const bool is_number =
        !number.empty() && std::isdigit(static_cast<unsigned char>(number.back())) != 0;
    if (!starts_with_letter || !is_number || !parse_bytes(number + words[i])) continue;
    const std::string option = i > 1 && is_option(words[i - 2]) ? words[i - 2] + " " : "";
    return option + number + words[i];
  }
  return "";
}

// Of words that belong to nothing; CLI11 names them from the last to the first.
std::string not_expected(const CLI::App& app, const CLI::App& command,
                         const std::vector<std::string>& words) {
  std::vector<std::string> left = app.remaining(true);
  std::vector<std::string> shown;
  for (const std::string& word : words) {
    const auto found = std::find(left.begin(), left.end(), word);
    if (found == left.end()) continue;
    left.erase(found);
    shown.push_back(word);
  }
  shown.insert(shown.end(), left.begin(), left.end());
  std::string message = "not expected:";
  for (const std::string& word : shown) message += " " + printable(word);
  const std::string bytes = parted_bytes(words);
  if (!bytes.empty()) return message + did_you_mean(printable(bytes));
  for (const std::string& word : shown) {
    if (is_option(word))
      message += did_you_mean(meant_option(command, word.substr(0, word.find('='))));
  }
  return message;
}

// The option that a message of CLI11 begins with; null: with none.
const CLI::Option* option_of(const CLI::App& command, const std::string& message) {
  const std::size_t colon = message.find(": ");
  return colon == std::string::npos ? nullptr
                                    : command.get_option_no_throw(message.substr(0, colon));
}

// What CLI11 says, with ranges and types in words.
std::string in_words(const CLI::App& command, const CLI::ParseError& error) {
  const std::string message = error.what();
  const CLI::Option* option = option_of(command, message);
  if (option == nullptr) return message;
  const std::string range = range_in_words(*option);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const int wanted = option->get_expected_min();
    const bool lacks = static_cast<int>(option->results().size()) < wanted;
    if (!lacks) return message;
    return fmt::format("{} wants {}{}", option->get_name(),
                       wanted == 1 ? "a value" : fmt::format("{} values", wanted),
                       range.empty() ? "" : " (" + range + ")");
  }
  if (dynamic_cast<const CLI::ValidationError*>(&error) == nullptr || range.empty() ||
      message.ends_with(not_finite)) {
    return message;
  }
  std::string given;
  for (const std::string& result : option->results()) given += (given.empty() ? "" : " ") + result;
  return fmt::format("{} = {}: must be {}", option->get_name(), printable(given), range);
}

}  // namespace

std::string usage_message(const CLI::App& app, const CLI::ParseError& error,
                          const std::vector<std::string>& words) {
  const NamedCommand chosen = chosen_command(app, words);
  const CLI::App& command = *chosen.app;
  const bool wants_command = command.get_require_subcommand_min() > 0;
  // Of a mistyped command CLI11 only says that one is missing.
  const bool no_command =
      wants_command && words.size() > chosen.words && !is_option(words[chosen.words]);
  std::string message;
  if (no_command) {
    message = unknown_command(app, chosen, words[chosen.words]);
  } else if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    message = not_expected(app, command, words);
  } else {
    message = in_words(command, error);
  }
  return fmt::format("{}; `{} --help` lists {}", message, chosen.path,
                     wants_command ? "the commands" : "its options");
}

std::string unknown_help(const CLI::App& app, const std::vector<std::string>& words) {
  const NamedCommand chosen = chosen_command(app, words);
  if (chosen.words == words.size()) return "";
  return fmt::format("{}; `{} --help` lists the commands",
                     unknown_command(app, chosen, words[chosen.words]), chosen.path);
}

}  // namespace garonne::apps
