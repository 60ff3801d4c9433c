#include "data/tokenizers/pattern.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <limits>

#include "base/error.hpp"
#include "base/printable.hpp"
#include "data/tokenizers/pattern_rewriter.hpp"

namespace garonne::data {
namespace {

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

struct Pattern::Compiled {
  Code code;
  bool jit = false;
};

Pattern::Pattern(const std::string& oniguruma) : compiled_(std::make_unique<Compiled>()) {
  const std::string rewritten = rewrite_pattern(oniguruma);
  const auto refuse = [&](const std::string& why) {
    throw ConfigError("tokenizer", printable(oniguruma),
                      "is an expression that cannot be used: " + why);
  };
  const CompileContext context(pcre2_compile_context_create(nullptr));
  // A dot of Oniguruma is anything but a line feed.
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE place = 0;
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rewritten.data()),
                                      rewritten.size(), PCRE2_UTF | PCRE2_UCP, &error, &place,
                                      context.get()));
  if (!compiled_->code)
    refuse(fmt::format("{} at byte {} of {}, as which PCRE2 has it", error_text(error), place,
                       printable(rewritten)));
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
