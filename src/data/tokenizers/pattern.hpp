// Regular expressions as tokenizers of Hugging Face write them, carried out by PCRE2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace garonne::data {

// Compiled once, used by the matchers of several threads.
class Pattern {
 public:
  // `oniguruma` as rewrite_pattern accepts it. ConfigError (key "tokenizer") for what it does not,
  // for what PCRE2 cannot compile, and for what matches nothing at all.
  explicit Pattern(const std::string& oniguruma);
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  // Matches a piece of text literally.
  static std::string literal(std::string_view text);

 private:
  friend class PatternMatcher;
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

// What a thread needs to match. The pattern must outlive it.
class PatternMatcher {
 public:
  explicit PatternMatcher(const Pattern& pattern);
  ~PatternMatcher();
  PatternMatcher(PatternMatcher&&) noexcept;

  enum class Outcome {
    Found,
    None,       // and there is none, whatever follows the text
    Undecided,  // text that follows may change the answer
  };
  struct Match {
    Outcome outcome = Outcome::None;
    std::size_t begin = 0;
    std::size_t end = 0;
  };
  // The first match in the valid `text` from `from` on. `complete`: nothing follows the text.
  Match find(std::string_view text, std::size_t from, bool complete);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace garonne::data
