#include "data/tokenizers/pattern_rewriter.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "data/tokenizers/unicode_text.hpp"

namespace garonne::data {
namespace {

// Of Unicode's White_Space, and of Oniguruma's word characters, as they stand inside brackets.
// PCRE2's own \s has U+180E besides, and its \w all numbers and no marks. The last four ranges are
// the symbols that are alphabetic.
constexpr const char* white_space =
    "\\t-\\r "
    "\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
constexpr const char* word =
    "\\p{L}\\p{M}\\p{Nl}\\p{Nd}\\p{Pc}"
    "\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";
// Superscripts and fractions of Latin-1, which Oniguruma's \w has outside brackets only.
constexpr const char* word_outside = "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}";

constexpr std::string_view categories[] = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
    "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};
// What PCRE2 knows besides categories and scripts in every version.
constexpr std::string_view of_pcre2_alone[] = {"Any", "Xan", "Xps", "Xsp", "Xuc", "Xwd"};

// Each is one character to Oniguruma where case does not count, as "ss" is U+00DF.
constexpr std::string_view ligatures[] = {"ff", "fi", "fl", "ss", "st"};

constexpr int most_nested = 64;

bool is_digit(char character) {
  return character >= '0' && character <= '9';
}
bool is_letter(char32_t character) {
  return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z');
}

// Since 10.40 a bare name of a script means its extensions, too; before, there is only the name.
bool has_script_property() {
  static const bool known = [] {
    int error = 0;
    PCRE2_SIZE place = 0;
    pcre2_code* const code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>("\\p{sc:Han}"), PCRE2_ZERO_TERMINATED, PCRE2_UTF,
                      &error, &place, nullptr);
    pcre2_code_free(code);
    return code != nullptr;
  }();
  return known;
}

class Rewriter {
 public:
  explicit Rewriter(const std::string& pattern) : whole_(pattern), pattern_(whole_) {}

  std::string rewrite() {
    if (!is_utf8(pattern_)) refuse("is no UTF-8");
    alternatives({});
    if (!at_end()) refuse("has a ) that closes nothing: write \\)");
    return std::move(text_);
  }

 private:
  struct Group {
    bool any_case = false;
    bool atomic = false;
    int depth = 0;
  };
  struct Atom {
    bool may_be_empty = false;
    bool repeats = true;  // whether it can
  };
  struct Interval {
    int least = 0;
    std::optional<int> most;
    bool exact = false;
    std::size_t size = 0;
  };

  [[noreturn]] void refuse(const std::string& why) const {
    throw ConfigError(
        "tokenizer", printable(whole_),
        fmt::format("is an expression that cannot be used: at byte {} it {}", place_, why));
  }
  [[noreturn]] void refuse_meaning(const std::string& what) const {
    refuse(
        fmt::format("has {}, which is not known to mean the same to PCRE2: write general "
                    "categories (\\p{{L}}), scripts (\\p{{Han}}), \\s, \\d, \\w or a list of "
                    "characters for it",
                    what));
  }

  bool at_end() const { return place_ >= pattern_.size(); }
  bool starts(std::string_view with) const { return pattern_.substr(place_, with.size()) == with; }
  char next(std::size_t ahead = 0) const {
    return place_ + ahead < pattern_.size() ? pattern_[place_ + ahead] : '\0';
  }
  void take(std::size_t characters) {
    text_ += pattern_.substr(place_, characters);
    place_ += characters;
  }
  void append(char32_t character) {
    if (character >= 0x80 || character < ' ') {
      text_ += fmt::format("\\x{{{:X}}}", static_cast<std::uint32_t>(character));
    } else {
      const char one = static_cast<char>(character);
      if (!is_letter(character) && !is_digit(one) && one != ' ' && one != '_') text_ += '\\';
      text_ += one;
    }
  }

  // Whether one of them may match nothing.
  bool alternatives(Group group) {
    if (group.depth > most_nested) refuse("has groups nested too deeply");
    bool may_be_empty = sequence(group);
    while (starts("|")) {
      take(1);
      before_ = 0;
      may_be_empty = sequence(group) || may_be_empty;
    }
    return may_be_empty;
  }

  bool sequence(Group group) {
    bool may_be_empty = true;
    while (!at_end() && !starts("|") && !starts(")")) {
      const std::size_t start = text_.size();
      const Atom one = atom(group);
      const bool optional = repetition(start, one, group);
      may_be_empty = may_be_empty && (one.may_be_empty || optional);
    }
    return may_be_empty;
  }

  Atom atom(Group group) {
    switch (next()) {
      case '(':
        return inner_group(group);
      case '[':
        brackets(group);
        return {};
      case '.':
        take(1);
        before_ = 0;
        return {};
      case '*':
      case '+':
      case '?':
        refuse(fmt::format("has a {0} behind nothing that it could repeat: write \\{0}", next()));
      case '{':
        refuse("has a { that begins no repetition: write \\{");
      case '^':
      case '$':
        refuse(fmt::format("has {}, which looks at what stands around", next()));
      default:
        if (next() == '\\' && set_of_characters(group, /*inside=*/false)) {
          before_ = 0;
        } else {
          const char32_t one = character(group);
          if (group.any_case) expect_no_ligature(one);
          append(one);
        }
        return {};
    }
  }

  Atom inner_group(Group group) {
    Atom atom;
    if (starts("(?:") || starts("(?>")) {
      group.atomic = group.atomic || starts("(?>");
      take(3);
    } else if (starts("(?i:")) {
      take(4);
      group.any_case = true;
    } else if (starts("(?=") || starts("(?!")) {
      take(3);
      atom.repeats = false;
    } else if (starts("(?<=") || starts("(?<!")) {
      refuse("looks at what stands before");
    } else if (starts("(?") || starts("(*")) {
      refuse(fmt::format("has {}: known are ( ), (?: ), (?i: ), (?> ), (?= ) and (?! )",
                         printable(std::string(pattern_.substr(place_, 3)))));
    } else {
      take(1);
    }
    ++group.depth;
    atom.may_be_empty = alternatives(group) || !atom.repeats;
    if (!starts(")")) refuse("has a group that is not closed");
    take(1);
    return atom;
  }

  // What repeats the atom whose text begins at `start`. Whether it may be left out.
  bool repetition(std::size_t start, Atom atom, Group group) {
    const std::optional<Interval> counted = interval();
    const char sign = next();
    if (!counted && sign != '?' && sign != '*' && sign != '+') return false;
    if (!atom.repeats) refuse("repeats what only looks ahead");
    const bool once = counted ? counted->most && *counted->most <= 1 : sign == '?';
    // When such a loop ends is each program's own.
    if (atom.may_be_empty && !once) refuse("repeats what may match nothing");
    bool optional = sign != '+';
    if (group.atomic && next(counted ? counted->size : 1) == '?') {
      // PCRE2 10.42 goes back into it, where compiled to machine code.
      refuse(
          "has a repetition of as few as can be within (?> ): write it "
          "without (?> ) or without its ?");
    }
    if (counted) {
      optional = counted_repetition(start, *counted, atom);
    } else {
      take(1);
      if (starts("?") || starts("+")) take(1);
    }
    if (interval() || starts("?") || starts("*") || starts("+"))
      refuse("repeats a repetition: put (?: ) around what is repeated");
    return optional;
  }

  bool counted_repetition(std::size_t start, const Interval& counted, Atom atom) {
    place_ += counted.size;
    if (counted.exact) {
      text_ += fmt::format("{{{}}}", counted.least);
    } else if (counted.most) {
      text_ += fmt::format("{{{},{}}}", counted.least, *counted.most);
    } else {
      text_ += fmt::format("{{{},}}", counted.least);
    }
    bool optional = counted.least == 0;
    const auto enclose = [&](char behind) {
      text_ = fmt::format("{}(?:{}){}", text_.substr(0, start), text_.substr(start), behind);
      ++place_;
    };
    if (starts("+")) {
      // To Oniguruma the repetition is repeated, to PCRE2 it gives nothing back.
      if (optional || atom.may_be_empty) refuse("repeats what may match nothing");
      enclose('+');
    } else if (starts("?") && counted.exact) {
      enclose('?');
      optional = true;
    } else if (starts("?")) {
      take(1);
    }
    return optional;
  }

  // A repetition {n}, {n,}, {n,m} or {,m} that stands here.
  std::optional<Interval> interval() const {
    if (next() != '{') return std::nullopt;
    std::string_view left = pattern_.substr(place_ + 1);
    const std::size_t before = left.size();
    const auto number = [&]() -> std::optional<int> {
      int value = 0;
      const auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), value);
      if (left.empty() || !is_digit(left[0]) || error != std::errc()) return std::nullopt;
      left.remove_prefix(static_cast<std::size_t>(end - left.data()));
      return value;
    };
    Interval read;
    const std::optional<int> least = number();
    read.least = least.value_or(0);
    read.exact = left.empty() || left[0] != ',';
    if (read.exact) {
      read.most = least;
    } else {
      left.remove_prefix(1);
      read.most = number();
    }
    if (left.empty() || left[0] != '}' || (!least && !read.most)) return std::nullopt;
    if (read.most && *read.most < read.least)
      refuse("has a repetition whose first number is the larger one");
    read.size = before - left.size() + 2;
    return read;
  }

  // A class such as \s or \p{L}, if one stands here.
  bool set_of_characters(Group group, bool inside) {
    const char letter = next(1);
    if (letter == 'p' || letter == 'P') {
      if (group.any_case) refuse_any_case(fmt::format("\\{}", letter));
      property(inside);
      return true;
    }
    const char kind = static_cast<char>(letter | 0x20);
    if (kind != 's' && kind != 'd' && kind != 'w') return false;
    const bool negated = letter != kind;
    if (kind == 'w' && group.any_case) refuse_any_case(fmt::format("\\{}", letter));
    if (inside && negated && kind != 'd')
      refuse(fmt::format("has \\{} in brackets, which is not known", letter));
    if (kind == 'd') {
      text_ += inside ? (negated ? "\\P{Nd}" : "\\p{Nd}") : (negated ? "[^\\p{Nd}]" : "[\\p{Nd}]");
    } else {
      const std::string members = kind == 's' ? white_space : word;
      text_ += inside ? members
                      : fmt::format("[{}{}{}]", negated ? "^" : "", members,
                                    kind == 'w' ? word_outside : "");
    }
    place_ += 2;
    return true;
  }

  void property(bool inside) {
    bool negated = next(1) == 'P';
    const std::size_t end = pattern_.find('}', place_);
    if (next(2) != '{' || end == std::string_view::npos)
      refuse(fmt::format("has \\{0} without braces: write \\{0}{{L}}", next(1)));
    std::string_view name = pattern_.substr(place_ + 3, end - place_ - 3);
    if (name.substr(0, 1) == "^") {
      negated = !negated;
      name.remove_prefix(1);
    }
    const auto is_among = [&](const auto& names) {
      return std::find(std::begin(names), std::end(names), name) != std::end(names);
    };
    const bool category = is_among(categories);
    const bool is_name = std::all_of(name.begin(), name.end(), [](char one) {
      return is_letter(static_cast<unsigned char>(one)) || one == '_';
    });
    if (!category && (name.size() < 2 || !is_name || is_among(of_pcre2_alone)))
      refuse_meaning(printable(std::string(pattern_.substr(place_, end + 1 - place_))));
    const std::string_view meaning = !category && has_script_property() ? "sc:" : "";
    // Not \P outside brackets: PCRE2 10.42 takes it that \P{L} never follows where \P{N}+ ends.
    text_ += inside ? fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', meaning, name)
                    : fmt::format("[{}\\p{{{}{}}}]", negated ? "^" : "", meaning, name);
    place_ = end + 1;
  }

  // The character that stands here, by itself or after a backslash.
  char32_t character(Group group) {
    if (next() != '\\') {
      const auto [one, bytes] = character_at(pattern_, place_);
      place_ += bytes;
      return in_case(one, group);
    }
    if (place_ + 1 == pattern_.size()) refuse("ends in a backslash");
    const auto [letter, bytes] = character_at(pattern_, place_ + 1);
    constexpr std::string_view letters = "nrtfvae";
    constexpr std::string_view meant = "\n\r\t\f\v\a\x1B";
    if (letter == 'x' || letter == 'u') return in_case(by_number(), group);
    const std::size_t known =
        letter < 0x80 ? letters.find(static_cast<char>(letter)) : std::string_view::npos;
    if (known != std::string_view::npos) {
      place_ += 2;
      return static_cast<unsigned char>(meant[known]);
    }
    if (is_letter(letter) || (letter < 0x80 && is_digit(static_cast<char>(letter))))
      refuse_meaning(fmt::format("\\{}", static_cast<char>(letter)));
    place_ += 1 + bytes;
    return in_case(letter, group);
  }

  // \x{H}, \xHH below 80, which else are bytes, and \uHHHH.
  char32_t by_number() {
    const bool braces = starts("\\x{");
    std::size_t digits = starts("\\u") ? 4 : 2;
    if (braces) digits = std::min(pattern_.find('}', place_), pattern_.size()) - place_ - 3;
    const std::string_view number = pattern_.substr(place_ + (braces ? 3 : 2), digits);
    std::uint32_t value = 0;
    const auto [end, error] =
        std::from_chars(number.data(), number.data() + number.size(), value, 16);
    const bool is_number = error == std::errc() && end == number.data() + number.size() &&
                           number.size() == digits && digits > 0;
    if (!is_number || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000) ||
        (starts("\\x") && !braces && value >= 0x80))
      refuse(fmt::format("has \\{} without the number of a character: write \\x{{20AC}}", next(1)));
    place_ += digits + (braces ? 4 : 2);
    return value;
  }

  char32_t in_case(char32_t one, Group group) const {
    // Punctuation has no case; of letters beyond ASCII some are several others.
    const bool punctuation = one >= 0x2010 && one <= 0x2027;
    if (group.any_case && one >= 0x80 && !punctuation) refuse_any_case("a character beyond ASCII");
    return one;
  }

  [[noreturn]] void refuse_any_case(const std::string& what) const {
    refuse(
        fmt::format("has {} within (?i: ), which is not known to mean the same to PCRE2: write "
                    "both cases without (?i: )",
                    what));
  }

  void expect_no_ligature(char32_t one) {
    const char32_t small = is_letter(one) ? one | 0x20U : 0;
    for (const std::string_view two : ligatures) {
      if (before_ == static_cast<unsigned char>(two[0]) &&
          small == static_cast<unsigned char>(two[1]))
        refuse_any_case(fmt::format("\"{}\"", two));
    }
    before_ = small;
  }

  void brackets(Group group) {
    take(1);
    before_ = 0;
    if (starts("^")) {
      if (group.any_case) refuse_any_case("[^ ]");
      take(1);
    }
    if (starts("]")) refuse("has a ] that is the first in brackets: write \\]");
    for (bool first = true; !starts("]"); first = false) {
      if (at_end()) refuse("has a bracket that is not closed");
      if (starts("[:")) refuse_meaning("a POSIX bracket " + posix_bracket());
      if (starts("[")) refuse("has brackets in brackets: write \\[ for the character");
      if (starts("&&")) refuse("intersects sets of characters");
      if (next() == '\\' && set_of_characters(group, /*inside=*/true)) {
        expect_no_range();
        continue;
      }
      if (starts("-") && !first && next(1) != ']') refuse("has a - among characters: write \\-");
      const char32_t from = character(group);
      append(from);
      if (!starts("-") || next(1) == ']') continue;
      take(1);
      if (starts("[") || starts("-")) refuse("has a range that ends in no character");
      const char32_t to = character(group);
      if (to < from) refuse("has a range whose first character is the later one");
      append(to);
      expect_no_range();
    }
    take(1);
  }

  void expect_no_range() const {
    if (starts("-") && next(1) != ']')
      refuse("has a - behind what begins no range: write \\- for the character");
  }

  std::string posix_bracket() const {
    const std::size_t end = pattern_.find(":]", place_);
    const std::size_t size = end == std::string_view::npos ? 2 : end + 2 - place_;
    return printable(std::string(pattern_.substr(place_, size)));
  }

  const std::string& whole_;
  std::string_view pattern_;
  std::size_t place_ = 0;
  std::string text_;
  char32_t before_ = 0;  // the small letter that stands before, where case does not count
};

}  // namespace

std::string rewrite_pattern(const std::string& oniguruma) {
  return Rewriter(oniguruma).rewrite();
}

}  // namespace garonne::data
