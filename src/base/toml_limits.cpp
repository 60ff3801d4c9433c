#include "base/toml_limits.hpp"

#include <fmt/format.h>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/file.hpp"

namespace garonne {
namespace {

// Goes through a text outside of strings and comments. It need not understand it: what it passes on
// wrongly is no TOML either, and the parser says so.
class TomlScan {
 public:
  TomlScan(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  void run() {
    for (place_ = 0; place_ < text_.size(); ++place_) {
      const char c = text_[place_];
      if (c == '"' || c == '\'') {
        skip_string(c);
      } else if (c == '#') {
        place_ = text_.find('\n', place_);
        if (place_ == std::string_view::npos) return;
        end_of_line();
      } else if (c == '\n') {
        end_of_line();
      } else if (c == '.') {
        if (++dots_ >= most_key_parts)
          refuse(fmt::format("a key of more than {} parts", most_key_parts));
      } else if (c == '[' || c == '{') {
        dots_ = 0;
        if (++depth_ > most_toml_depth)
          refuse(fmt::format("values nested more than {} deep", most_toml_depth));
      } else if (c == ']' || c == '}') {
        dots_ = 0;
        if (depth_ > 0) --depth_;
      } else if (c == '=' || c == ',') {
        dots_ = 0;
      }
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(name_, "", fmt::format("line {}: holds {}", line_, what));
  }

  void end_of_line() {
    ++line_;
    dots_ = 0;
  }

  // Leaves `place_` at the last character of the string, or of the text where it has no end.
  void skip_string(char quote) {
    const std::string_view rest = text_.substr(place_);
    const bool escapes = quote == '"';
    const bool many_lines = rest.starts_with(escapes ? "\"\"\"" : "'''");
    if (many_lines) place_ += 2;
    for (++place_; place_ < text_.size(); ++place_) {
      const char c = text_[place_];
      if (escapes && c == '\\') {
        ++place_;
      } else if (c == '\n') {
        end_of_line();
        if (!many_lines) return;
      } else if (c == quote) {
        if (!many_lines) return;
        if (text_.substr(place_, 3) == std::string(3, quote)) {
          place_ += 2;
          return;
        }
      }
    }
  }

  std::string_view text_;
  const std::string& name_;
  std::size_t place_ = 0;
  int line_ = 1;
  int dots_ = 0;
  int depth_ = 0;
};

}  // namespace

void check_toml_limits(std::string_view text, const std::string& name) {
  if (text.size() > static_cast<std::size_t>(most_toml_bytes)) {
    throw ConfigError(name, "",
                      fmt::format("has {}, and such a text has at most {}",
                                  format_bytes(static_cast<std::int64_t>(text.size())),
                                  format_bytes(most_toml_bytes)));
  }
  TomlScan(text, name).run();
}

}  // namespace garonne
