#include "help.hpp"

#include <algorithm>
#include <sstream>

namespace garonne::apps {
namespace {

constexpr std::size_t line_width = 100;
constexpr std::size_t left_width = 32;

// Of UTF-8: bytes that continue none.
std::size_t characters(const std::string& word) {
  return static_cast<std::size_t>(
      std::count_if(word.begin(), word.end(), [](char byte) { return (byte & '\xC0') != '\x80'; }));
}

class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(left_width); }

  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(CLI::Formatter::make_option_desc(option), line_width - left_width);
  }

  std::string make_subcommand(const CLI::App* sub) const override {
    std::stringstream out;
    CLI::detail::format_help(out, sub->get_display_name(true),
                             wrapped(sub->get_description(), line_width - left_width), left_width);
    return out.str();
  }

  std::string make_description(const CLI::App* app) const override {
    return wrapped(CLI::Formatter::make_description(app), line_width);
  }
};

}  // namespace

std::string wrapped(const std::string& text, std::size_t width) {
  std::string lines;
  std::istringstream given(text);
  for (std::string line; std::getline(given, line);) {
    std::size_t used = 0;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      const std::size_t length = characters(word);
      if (used > 0 && used + 1 + length > width) {
        lines += '\n';
        used = 0;
      }
      if (used > 0) {
        lines += ' ';
        ++used;
      }
      lines += word;
      used += length;
    }
    if (!given.eof()) lines += '\n';
  }
  return lines;
}

std::shared_ptr<CLI::Formatter> help_formatter() {
  return std::make_shared<HelpFormatter>();
}

}  // namespace garonne::apps
