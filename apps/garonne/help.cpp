#include "help.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/wrapped.hpp"
#include "counts.hpp"
#include "terminal.hpp"

namespace garonne::apps {
namespace {

constexpr int most_columns = 100;
constexpr int least_columns = 40;
// Names stand left of what they mean; on a narrow terminal above it.
constexpr std::size_t narrow = 72;
constexpr std::size_t left_columns = 32;
constexpr std::size_t left_columns_of_narrow = 8;

class Page {
 public:
  explicit Page(std::size_t width)
      : width_(width), left_(width < narrow ? left_columns_of_narrow : left_columns) {}

  // Lines that begin with a space stay as they are: examples are there to be copied.
  void paragraph(const std::string& text) {
    std::istringstream given(text);
    for (std::string line; std::getline(given, line);)
      text_ += (line.starts_with(' ') ? line : wrapped(line, width_)) + "\n";
  }

  void heading(const std::string& text) { text_ += "\n" + wrapped(text + ":", width_) + "\n"; }

  void entry(const std::string& name, const std::string& meaning) {
    text_ += "  " + name;
    std::size_t column = 2 + columns_of(name);
    if (meaning.empty()) {
      text_ += "\n";
      return;
    }
    if (column >= left_) {
      text_ += "\n";
      column = 0;
    }
    std::istringstream lines(wrapped(meaning, width_ - left_));
    for (std::string line; std::getline(lines, line); column = 0)
      text_ += std::string(left_ - column, ' ') + line + "\n";
  }

  void indented(const std::string& text) {
    std::istringstream lines(wrapped(text, width_ - 2));
    for (std::string line; std::getline(lines, line);) text_ += "  " + line + "\n";
  }

  const std::string& text() const { return text_; }

 private:
  std::size_t width_;
  std::size_t left_;
  std::string text_;
};

// The library names ranges as "INT in [1 - 1000]", "{one,other}" or "({0}) OR (INT in [2 - 9])".
std::string words_of(const std::string& range) {
  constexpr std::string_view alternative = ") OR (";
  const std::size_t other = range.find(alternative);
  if (range.starts_with('(') && range.ends_with(')') && other != std::string::npos) {
    const std::size_t second = other + alternative.size();
    return words_of(range.substr(1, other - 1)) + ", or " +
           words_of(range.substr(second, range.size() - second - 1));
  }
  if (range == "NONNEGATIVE") return "at least 0";
  if (range == "POSITIVE") return "above 0";
  if (range.starts_with('{') && range.ends_with('}')) {
    std::string words = range.substr(1, range.size() - 2);
    for (std::size_t at = 0; (at = words.find(',', at)) != std::string::npos; at += 2)
      words.replace(at, 1, ", ");
    return words;
  }
  constexpr std::string_view within = " in [";
  const std::size_t begin = range.find(within);
  const std::size_t dash = range.find(" - ", begin);
  if (begin == std::string::npos || dash == std::string::npos || !range.ends_with(']'))
    return range;
  const std::size_t least = begin + within.size();
  const std::string most = range.substr(dash + 3, range.size() - dash - 4);
  const std::string from = range.substr(least, dash - least);
  // Bounds that only keep numbers from overflowing say nothing.
  const bool bounded =
      std::stod(most) != static_cast<double>(most_counted) && std::stod(most) < 1e15;
  return bounded ? from + " to " + most : "at least " + from;
}

// What stands for the value of an option; empty: it has none.
std::string placeholder(const CLI::Option& option) {
  if (!option.get_option_text().empty()) return option.get_option_text();
  if (option.get_type_size() == 0) return "";
  const std::string type = option.get_type_name();
  const std::string base = type.substr(0, type.find(':'));
  std::string word = base == "INT" || base == "UINT" ? "N" : base == "FLOAT" ? "NUMBER" : base;
  if (word.empty()) return word;
  if (option.get_expected_max() == CLI::detail::expected_max_vector_size) return word + " ...";
  for (int i = 1; i < option.get_expected_min(); ++i) word += " " + base;
  return word;
}

// "-h,--help"; without what CLI11 adds to flags that switch something off.
std::string option_name(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return fmt::format("{}", fmt::join(names, ","));
}

std::string names_of(const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options) names.push_back(option->get_name());
  std::sort(names.begin(), names.end());
  return fmt::format("{}", fmt::join(names, " and "));
}

// The description, and in brackets range, default and what else there is to say. A description
// that ends with brackets has there in words what happens without the option.
std::string meaning_of(const CLI::Option& option) {
  std::string meaning = option.get_description();
  std::string otherwise = option.get_default_str();
  if (otherwise.starts_with('[') && otherwise.ends_with(']'))
    otherwise = otherwise.substr(1, otherwise.size() - 2);
  const std::size_t bracket = meaning.rfind(" [");
  if (meaning.ends_with(']') && bracket != std::string::npos) {
    otherwise = meaning.substr(bracket + 2, meaning.size() - bracket - 3);
    meaning.resize(bracket);
  }
  std::vector<std::string> facts;
  if (option.get_required() && option.nonpositional()) facts.emplace_back("required");
  const std::string range = range_in_words(option);
  if (!range.empty()) facts.push_back(range);
  if (!otherwise.empty())
    facts.push_back(otherwise.find("default ") == std::string::npos ? "default " + otherwise
                                                                    : otherwise);
  if (!option.get_needs().empty()) facts.push_back("with " + names_of(option.get_needs()));
  if (!option.get_excludes().empty())
    facts.push_back("not with " + names_of(option.get_excludes()));
  return facts.empty() ? meaning : fmt::format("{} [{}]", meaning, fmt::join(facts, "; "));
}

std::string positional_name(const CLI::Option& option) {
  std::string name = option.get_name(true, false);
  if (option.get_expected_max() == CLI::detail::expected_max_vector_size) name += "...";
  return option.get_required() ? name : "[" + name + "]";
}

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

class HelpFormatter final : public CLI::FormatterBase {
 public:
  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const override {
    Page page(static_cast<std::size_t>(
        std::clamp(terminal_columns(most_columns), least_columns, most_columns)));
    page.paragraph(app->get_description());
    const auto positionals =
        app->get_options([](const CLI::Option* option) { return option->get_positional(); });
    std::string usage = "Usage: " + name + " [OPTIONS]";
    for (const CLI::Option* option : positionals) usage += " " + positional_name(*option);
    if (!commands_of(*app).empty())
      usage += app->get_require_subcommand_min() > 0 ? " SUBCOMMAND" : " [SUBCOMMAND]";
    page.paragraph(usage);
    if (!positionals.empty()) page.heading("Positionals");
    for (const CLI::Option* option : positionals)
      page.entry(option->get_name(true, false), meaning_of(*option));
    if (!commands_of(*app).empty()) page.heading("Subcommands");
    for (const CLI::App* command : commands_of(*app))
      page.entry(command->get_name(), command->get_description());
    add_groups(*app, page);
    if (!app->get_footer().empty()) page.paragraph("\n" + app->get_footer());
    return page.text();
  }

 private:
  static void add_groups(const CLI::App& app, Page& page) {
    for (const std::string& group : app.get_groups()) {
      const auto options = app.get_options([&group](const CLI::Option* option) {
        return option->nonpositional() && option->get_group() == group;
      });
      if (group.empty() || options.empty()) continue;
      page.heading(group);
      if (group == keys_listed_elsewhere) {
        page.indented(fmt::format(
            "every key of a run file can be given as --table.key VALUE; `garonne {} --help` lists "
            "them",
            command_that_lists_keys));
        continue;
      }
      for (const CLI::Option* option : options) {
        const std::string value = placeholder(*option);
        page.entry(option_name(*option) + (value.empty() ? "" : " " + value), meaning_of(*option));
      }
    }
  }
};

}  // namespace

std::string range_in_words(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t colon = type.find(':');
  return colon == std::string::npos ? "" : words_of(type.substr(colon + 1));
}

std::shared_ptr<CLI::FormatterBase> help_formatter() {
  return std::make_shared<HelpFormatter>();
}

}  // namespace garonne::apps
