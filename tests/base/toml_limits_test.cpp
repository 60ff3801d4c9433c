// What a TOML text may be before it is parsed.
#include "base/toml_limits.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/choices.hpp"
#include "base/config.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/repeated.hpp"
#include "base/toml.hpp"

namespace garonne {
namespace {

std::string refusal(const std::string& text) {
  try {
    check_toml_limits(text, "run.toml");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(TomlLimits, OrdinaryTextPasses) {
  for (const std::string text :
       {"", "[model]\nlayers = 4 # a comment with ....................... dots\n",
        "a = \"....................\"\nb = '....................'\n",
        "a = \"\"\"\n[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\n\"\"\"\n",
        "a = '''....................\n[.......................'''\nb = 1.5",
        "a = \"an escaped \\\" and ...................\"\n", "modes = [16, 16]\n",
        "[a.b.c]\nd.e.f = { g.h = [[1.5, 2.5], [3.5]] }\n"}) {
    EXPECT_EQ(refusal(text), "") << text;
  }
  // Many lines with few dots each.
  EXPECT_EQ(refusal(repeated("a.b = 1.5\n", 10'000)), "");
}

TEST(TomlLimits, LongKeysAndDeepNestingAreRefusedWithTheirLine) {
  const std::string parts = "run.toml: line 3: holds a key of more than 16 parts";
  const std::string depth = "run.toml: line 3: holds values nested more than 32 deep";
  for (const int times : {16, 100'000}) {
    EXPECT_EQ(refusal("\n\na" + repeated(".a", times) + " = 1"), parts);
    EXPECT_EQ(refusal("\n\n[a" + repeated(".a", times) + "]"), parts);
    EXPECT_EQ(refusal("\n\na" + repeated(" . \"a\"", times) + " = 1"), parts);
    EXPECT_EQ(refusal("\n\nb = {c = 1, a" + repeated(".'x'", times) + " = 1}"), parts);
  }
  for (const int times : {33, 100'000}) {
    EXPECT_EQ(refusal("\n\na = " + repeated("[", times)), depth);
    EXPECT_EQ(refusal("\n\na = " + repeated("[", times) + repeated("]", times)), depth);
    EXPECT_EQ(refusal("\n\na = " + repeated("{a=", times)), depth);
  }
  EXPECT_EQ(refusal("a" + repeated(".a", 15) + " = 1"), "");
  EXPECT_EQ(refusal("a = " + repeated("[", 32) + repeated("]", 32)), "");
}

TEST(TomlLimits, LargeTextsAreRefused) {
  const std::string most(static_cast<std::size_t>(most_toml_bytes), '\n');
  EXPECT_EQ(refusal(most), "");
  EXPECT_NE(refusal(most + "\n").find("at most 1.00 MiB"), std::string::npos);
}

TEST(TomlLimits, BothReadersKeepThem) {
  const std::string bomb = "a" + repeated(".a", 100'000) + " = 1";
  EXPECT_THROW(parse_config(bomb, "run.toml", {}, test::some_choices()), ConfigError);
  EXPECT_THROW(parse_toml(bomb, "cluster.toml"), ConfigError);
}

TEST(TomlLimits, ValuesAndKeysAreNotEchoedWhole) {
  const std::string large(900'000, 'x');
  for (const std::string& text :
       {"[model]\nkind = \"" + large + "\"\n", "[model]\n" + large + " = 1\n",
        "[model]\nlayers = \"" + large + "\"\n", large + " = \n", "[model]\nkind = " + large}) {
    try {
      parse_config(text, "run.toml", {}, test::some_choices());
      ADD_FAILURE() << "read";
    } catch (const ConfigError& error) {
      EXPECT_LE(std::string(error.what()).size(), 2000U);
    }
  }
}

}  // namespace
}  // namespace garonne
