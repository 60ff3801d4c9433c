#include "data/tokenizers/pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <limits>

#include "base/error.hpp"

namespace garonne::data {
namespace {

// Of Unicode's White_Space, and of Oniguruma's word characters, as they stand inside brackets.
// PCRE2's own \s has U+180E besides, and its \w all numbers and no marks.
constexpr const char* white_space =
    "\\t-\\r "
    "\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
constexpr const char* word = "\\p{L}\\p{M}\\p{Nd}\\p{Pc}";

// A class of characters by its letter, as it stands inside brackets; null: none that is rewritten.
const char* members_of(char letter) {
  switch (letter) {
    case 's':
    case 'S':
      return white_space;
    case 'w':
    case 'W':
      return word;
    case 'd':
    case 'D':
      return "\\p{Nd}";
    default:
      return nullptr;
  }
}

bool is_negated(char letter) {
  return letter >= 'A' && letter <= 'Z';
}

class Rewriter {
 public:
  explicit Rewriter(std::string_view pattern) : pattern_(pattern) {}

  RewrittenPattern rewrite() {
    while (place_ < pattern_.size() && fault_.empty()) {
      const char here = pattern_[place_];
      if (here == '\\') {
        escape();
      } else if (here == '[') {
        brackets();
      } else if (here == '^' || here == '$') {
        fault_ = fmt::format("{} looks at what stands around", here);
      } else if (here == '(' && (starts("(?<=") || starts("(?<!"))) {
        fault_ = "looks at what stands before";
      } else {
        take(1);
      }
    }
    if (!fault_.empty()) return {"", fault_};
    return {std::move(text_), ""};
  }

 private:
  bool starts(std::string_view with) const { return pattern_.substr(place_, with.size()) == with; }
  void take(std::size_t characters) {
    text_ += pattern_.substr(place_, characters);
    place_ += characters;
  }

  void escape() {
    if (place_ + 1 == pattern_.size()) {
      fault_ = "ends in a backslash";
      return;
    }
    const char letter = pattern_[place_ + 1];
    if (const char* members = members_of(letter)) {
      text_ += fmt::format("[{}{}]", is_negated(letter) ? "^" : "", members);
      place_ += 2;
      return;
    }
    switch (letter) {
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
      case 'b':
      case 'B':
      case 'K':
        fault_ = fmt::format("\\{} looks at what stands around", letter);
        return;
      case 'h':
      case 'H':
      case 'R':
      case 'X':
        fault_ = fmt::format("\\{} has several meanings", letter);
        return;
      default:
        take(2);
    }
  }

  void brackets() {
    take(1);
    if (starts("^")) take(1);
    if (starts("]")) take(1);
    while (place_ < pattern_.size() && !starts("]")) {
      if (starts("[:")) {
        const std::size_t end = pattern_.find(":]", place_);
        if (end == std::string_view::npos) break;
        take(end + 2 - place_);
      } else if (starts("[")) {
        fault_ = "has brackets in brackets";
        return;
      } else if (starts("&&")) {
        fault_ = "intersects sets of characters";
        return;
      } else if (starts("\\") && place_ + 1 < pattern_.size()) {
        const char letter = pattern_[place_ + 1];
        const char* members = members_of(letter);
        if (members == nullptr) {
          take(2);
        } else if (is_negated(letter) && letter != 'D') {
          fault_ = fmt::format("\\{} in brackets is not known", letter);
          return;
        } else {
          text_ += letter == 'D' ? "\\P{Nd}" : members;
          place_ += 2;
        }
      } else {
        take(1);
      }
    }
    if (place_ == pattern_.size()) {
      fault_ = "has a bracket that is not closed";
    } else {
      take(1);
    }
  }

  std::string_view pattern_;
  std::size_t place_ = 0;
  std::string text_;
  std::string fault_;
};

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

// Long texts backtrack far; what keeps a match from ending is the text's end.
constexpr std::size_t largest_jit_stack = std::size_t{64} << 20;

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* pointer) const {
    Free(pointer);
  }
};
using Code = std::unique_ptr<pcre2_code, Freed<pcre2_code_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Freed<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freed<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freed<pcre2_match_data_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Freed<pcre2_jit_stack_free>>;

}  // namespace

RewrittenPattern rewrite_pattern(std::string_view oniguruma) {
  return Rewriter(oniguruma).rewrite();
}

struct Pattern::Compiled {
  Code code;
  bool jit = false;
};

Pattern::Pattern(const std::string& oniguruma) : compiled_(std::make_unique<Compiled>()) {
  const RewrittenPattern rewritten = rewrite_pattern(oniguruma);
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("tokenizer", oniguruma, "is an expression that cannot be used: " + why);
  };
  if (!rewritten.fault.empty()) refuse("it " + rewritten.fault);
  const CompileContext context(pcre2_compile_context_create(nullptr));
  // A dot of Oniguruma is anything but a line feed.
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE place = 0;
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.text.data()),
                                      rewritten.text.size(), PCRE2_UTF | PCRE2_UCP, &error, &place,
                                      context.get()));
  if (!compiled_->code) refuse(fmt::format("{} at {}", error_text(error), place));
  std::uint32_t looks_behind = 0;
  std::uint32_t matches_nothing = 0;
  pcre2_pattern_info(compiled_->code.get(), PCRE2_INFO_MAXLOOKBEHIND, &looks_behind);
  pcre2_pattern_info(compiled_->code.get(), PCRE2_INFO_MATCHEMPTY, &matches_nothing);
  if (looks_behind > 0) refuse("it looks at what stands before");
  if (matches_nothing != 0) refuse("it matches nothing at all");
  compiled_->jit =
      pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
}

Pattern::~Pattern() = default;
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;

std::string Pattern::literal(std::string_view text) {
  std::string pattern;
  for (const char character : text) {
    if (std::string_view("\\^$.[]|()?*+{}&-#").find(character) != std::string_view::npos)
      pattern += '\\';
    pattern += character;
  }
  return pattern;
}

struct PatternMatcher::State {
  const pcre2_code* code = nullptr;
  bool jit = false;
  JitStack stack;
  MatchContext context;
  MatchData data;
};

PatternMatcher::PatternMatcher(const Pattern& pattern) : state_(std::make_unique<State>()) {
  state_->code = pattern.compiled_->code.get();
  state_->jit = pattern.compiled_->jit;
  state_->context.reset(pcre2_match_context_create(nullptr));
  // A long run of one kind of characters is no attack.
  pcre2_set_match_limit(state_->context.get(), std::numeric_limits<std::uint32_t>::max());
  pcre2_set_depth_limit(state_->context.get(), std::numeric_limits<std::uint32_t>::max());
  if (state_->jit) {
    state_->stack.reset(pcre2_jit_stack_create(32 << 10, largest_jit_stack, nullptr));
    pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
  }
  state_->data.reset(pcre2_match_data_create(1, nullptr));
  expect(state_->context && state_->data, "no memory for a match");
}

PatternMatcher::~PatternMatcher() = default;
PatternMatcher::PatternMatcher(PatternMatcher&&) noexcept = default;

PatternMatcher::Match PatternMatcher::find(std::string_view text, std::size_t from, bool complete) {
  const std::uint32_t options = complete ? 0 : PCRE2_PARTIAL_HARD;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const int outcome =
      state_->jit
          ? pcre2_jit_match(state_->code, subject, text.size(), from, options, state_->data.get(),
                            state_->context.get())
          : pcre2_match(state_->code, subject, text.size(), from, options | PCRE2_NO_UTF_CHECK,
                        state_->data.get(), state_->context.get());
  if (outcome == PCRE2_ERROR_NOMATCH) return {};
  if (outcome == PCRE2_ERROR_PARTIAL) return {Outcome::Undecided, 0, 0};
  // 0: there are more groups than places for them, of which only the whole match is looked at.
  if (outcome < 0) throw InternalError("a match failed: " + error_text(outcome));
  const PCRE2_SIZE* place = pcre2_get_ovector_pointer(state_->data.get());
  return {Outcome::Found, place[0], place[1]};
}

}  // namespace garonne::data
