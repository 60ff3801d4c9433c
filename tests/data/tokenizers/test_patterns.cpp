#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "data/tokenizers/pattern.hpp"
#include "data/tokenizers/pattern_rewriter.hpp"

namespace garonne::data {
namespace {

// A text cut into the matches and what lies between them.
std::vector<std::string> pieces(const std::string& oniguruma, const std::string& text) {
  const Pattern pattern(oniguruma);
  PatternMatcher matcher(pattern);
  std::vector<std::string> all;
  for (std::size_t place = 0; place < text.size();) {
    const PatternMatcher::Match match = matcher.find(text, place, /*complete=*/true);
    const bool found = match.outcome == PatternMatcher::Outcome::Found;
    const std::size_t rest = found ? match.begin : text.size();
    if (rest > place) all.push_back(text.substr(place, rest - place));
    if (found) all.push_back(text.substr(match.begin, match.end - match.begin));
    place = found ? match.end : text.size();
  }
  return all;
}

using Pieces = std::vector<std::string>;

// Each as Hugging Face's Split of `isolated` cuts it.
TEST(Pattern, CutsAsHuggingFace) {
  EXPECT_EQ(pieces("\\p{Han}+", "中文。中"), (Pieces{"中文", "。", "中"}));
  EXPECT_EQ(pieces("[\\p{Katakana}a]+", "アa。イ"), (Pieces{"アa", "。", "イ"}));
  EXPECT_EQ(pieces("\\P{Han}+", "文。、中"), (Pieces{"文", "。、", "中"}));
  EXPECT_EQ(pieces("\\P{N}+\\P{L}", "a.b"), (Pieces{"a.", "b"}));
  EXPECT_EQ(pieces("\\p{^L}", "a1"), (Pieces{"a", "1"}));
  EXPECT_EQ(pieces("\\p{N}{1,3}+|\\p{L}+", "1234ab"), (Pieces{"1234", "ab"}));
  EXPECT_EQ(pieces("a{2}+", "aaaaa"), (Pieces{"aaaa", "a"}));
  EXPECT_EQ(pieces("a{2}?b", "aab b"), (Pieces{"aab", " ", "b"}));
  EXPECT_EQ(pieces("a{,2}b", "aaab"), (Pieces{"a", "aab"}));
  EXPECT_EQ(pieces("a{2,}?", "aaaa"), (Pieces{"aa", "aa"}));
  EXPECT_EQ(pieces("a++b|a", "aaba"), (Pieces{"aab", "a"}));
  EXPECT_EQ(pieces("\\w+", "a²Ⅷⓐ①"), (Pieces{"a²Ⅷⓐ", "①"}));
  EXPECT_EQ(pieces("[\\w]+", "a²Ⅷ"), (Pieces{"a", "²", "Ⅷ"}));
  EXPECT_EQ(pieces("\\v", "a\n\v"), (Pieces{"a\n", "\v"}));
  EXPECT_EQ(pieces("[\\u4e00-\\u9fff]+|\\x{41}\\。", "A。中文"), (Pieces{"A。", "中文"}));
  EXPECT_EQ(pieces("'(?i:[sdmt]|ll|ve|re)", "'S'ſ'LL"), (Pieces{"'S", "'ſ", "'LL"}));
  EXPECT_EQ(pieces("[-a]+|[!#-&]", "-a%"), (Pieces{"-a", "%"}));
}

// Whatever means something else to PCRE2, or is not known to mean the same.
TEST(Pattern, RefusesByNameWhatMayDiffer) {
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"[[:alnum:]]", "[:alnum:]"},
      {"[[:punct:]]+", "general categories"},
      {"\\p{Alphabetic}", "\\p{sc:Alphabetic}"},
      {"\\p{Any}", "\\p{Any}"},
      {"\\p{L&}", "\\p{L&}"},
      {"\\pL", "\\p without braces"},
      {"[\\pL]", "write \\p{L}"},
      {"[\\h]", "\\h"},
      {"\\h", "\\h"},
      {"\\R", "\\R"},
      {"(a)\\1", "\\1"},
      {"[\\x80-\\xFF]", "\\x{20AC}"},
      {"\\x{D800}", "number of a character"},
      {"\\x4", "number of a character"},
      {"(?m:a.b)", "(?m"},
      {"a(?i)b", "(?i"},
      {"(?#a)b", "(?#"},
      {"(*FAIL)a", "(*F"},
      {"a{2,1}", "first number"},
      {"a{b", "write \\{"},
      {"a+*", "repeats a repetition"},
      {"a{2}{3}", "repeats a repetition"},
      {"(?:a?)+b", "may match nothing"},
      {"a{0,2}+b", "may match nothing"},
      {"(?=a)+b", "looks ahead"},
      {"*a", "write \\*"},
      {"[]a]", "write \\]"},
      {"[a-c-e]", "write \\-"},
      {"[\\d-a]", "write \\-"},
      {"[b-a]", "the later one"},
      {"[a", "not closed"},
      {"a)", "write \\)"},
      {"(?i:ss)", "\"ss\""},
      {"(?i:a|s(?:T))", "\"st\""},
      {"(?i:ß)", "beyond ASCII"},
      {"(?i:[^a])", "[^ ]"},
      {"(?i:\\p{Lu})", "\\p"},
      {"(?>a|b*?)c", "without its ?"},
      {"\xff", "UTF-8"},
      {std::string(100, '(') + "a" + std::string(100, ')'), "nested"}};
  for (const auto& [pattern, part] : refused) {
    try {
      const Pattern taken(pattern);
      ADD_FAILURE() << "not refused: " << pattern;
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }
}

TEST(Pattern, RefusesWhatCannotBeCut) {
  for (const char* pattern : {"(?<=a)b", "(?<!a)b", "^a", "a$", "\\ba", "a\\b", "[a[bc]]", "[a&&b]",
                              "a*", "a|", "(a", "[\\S]", "a\\"}) {
    EXPECT_THROW(Pattern{pattern}, ConfigError) << pattern;
  }
}

TEST(Pattern, FindsTextLiterally) {
  const std::string text = "a.b[c]{2}-\\d (é)\n#&";
  EXPECT_EQ(pieces(Pattern::literal(text), "x" + text + "y"), (Pieces{"x", text, "y"}));
}

}  // namespace
}  // namespace garonne::data
