// JSON from outside: limits of the parser, and refusals by key.
#include "base/json_input.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/error.hpp"
#include "base/repeated.hpp"

namespace garonne {
namespace {

// The message of a refusal; empty where nothing is refused.
std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string parse_refusal(const std::string& text) {
  return refusal([&] { parse_json(text, "a.json"); });
}

TEST(JsonInput, NestingIsBounded) {
  const auto lists = [](int depth) { return repeated("[", depth) + repeated("]", depth); };
  const auto objects = [](int depth) {
    return repeated("{\"a\":", depth) + "1" + repeated("}", depth);
  };
  EXPECT_EQ(parse_refusal(lists(most_json_depth)), "");
  EXPECT_EQ(parse_refusal(objects(most_json_depth)), "");
  const std::string deep = "is nested more than 64 deep";
  EXPECT_EQ(parse_refusal(lists(most_json_depth + 1)), "a.json: " + deep);
  EXPECT_NE(parse_refusal(objects(most_json_depth + 1)).find(deep), std::string::npos);
  for (const int depth : {1000, 100'000}) {
    EXPECT_NE(parse_refusal(lists(depth)).find(deep), std::string::npos);
    EXPECT_NE(parse_refusal(objects(depth)).find(deep), std::string::npos);
    EXPECT_NE(parse_refusal("{\"x\":" + lists(depth) + "}").find(deep), std::string::npos);
    EXPECT_NE(parse_refusal(repeated("[", depth)).find(deep), std::string::npos);
    EXPECT_NE(parse_refusal(repeated("[{\"a\":", depth)).find(deep), std::string::npos);
    EXPECT_THROW(parse_ordered_json(lists(depth), "a.json", FileOwner::Run), IoError);
  }
}

TEST(JsonInput, ValuesAreCounted) {
  const auto refused = [](const std::string& text, std::size_t most) {
    return !refusal([&] { parse_json(text, "a.json", FileOwner::User, most); }).empty();
  };
  for (const std::string value : {"0", "\"text\"", "[]", "{}"}) {
    const std::string list = "[" + repeated(value + ",", 999) + value + "]";
    EXPECT_FALSE(refused(list, 1001)) << value;
    EXPECT_TRUE(refused(list, 1000)) << value;
  }
  EXPECT_FALSE(refused(R"({"a": 1, "b": 2})", 7));  // a key takes as much memory as two values
  EXPECT_TRUE(refused(R"({"a": 1, "b": 2})", 6));
}

TEST(JsonInput, SyntaxErrorsHaveAPlaceAndNoWordOfTheLibrary) {
  EXPECT_EQ(parse_refusal(""), "a.json: is no JSON: it is empty");
  EXPECT_EQ(parse_refusal("{\n  \"a\": 1,\n  \"b\": ?\n}"),
            "a.json: at or after b: is no JSON from line 3, column 8 on");
  EXPECT_EQ(parse_refusal("{\"a\": 1e999}"),
            "a.json: at or after a: is no JSON: it holds a number that is too large");
  EXPECT_EQ(parse_refusal("{\"a\": 1, \"a\": 2}"), "a.json: a: is given twice in one object");
  for (const std::string text : {"{", "[1,]", "nul", "\"\xff\"", "\"open", "1 2", "{\"a\" 1}",
                                 "\xef\xbb\xbf{", "NaN", "'a'", "{1:2}", "\"\\ud800\""}) {
    const std::string message = parse_refusal(text);
    EXPECT_NE(message.find("a.json"), std::string::npos) << text;
    EXPECT_NE(message.find("is no JSON"), std::string::npos) << message;
    EXPECT_EQ(message.find("exception"), std::string::npos) << message;
  }
}

TEST(JsonInput, PlacesNameTheKey) {
  const nlohmann::json json = nlohmann::json::parse(
      R"({"tasks": [{}, {"reads": [1, "x", -3, 1.5, 9223372036854775808], "b": 1e300}],
          "name": "n", "on": true, "none": null})");
  const std::string name = "g.json";
  const JsonFile file(json, name);
  const JsonPlace root = file.root();
  const JsonPlace task = root.key("tasks").element(1);
  EXPECT_EQ(task.key("reads").element(0).integer(), 1);
  EXPECT_EQ(root.key("name").text(), "n");
  EXPECT_TRUE(root.key("on").truth());
  const auto expect = [&](const std::string& message, const std::function<void()>& action) {
    EXPECT_EQ(refusal(action), "g.json: " + message);
  };
  const auto read = [&](std::size_t i) { return task.key("reads").element(i); };
  expect("tasks[1].reads[1] = x: is no integer", [&] { read(1).integer(); });
  expect("tasks[1].reads[2] = -3: is negative", [&] { read(2).integer(0); });
  expect("tasks[1].reads[2] = -3: is below -2", [&] { read(2).integer(-2); });
  expect("tasks[1].reads[0] = 1: is above 0", [&] { read(0).integer(0, 0); });
  expect("tasks[1].reads[3] = 1.5: is no integer", [&] { read(3).integer(); });
  expect("tasks[1].reads[4] = 9223372036854775808: is above 9223372036854775807",
         [&] { read(4).integer(); });
  expect("tasks[1].b = 1e+300: is above 1000000000000", [&] { task.key("b").number(0, 1e12); });
  expect("tasks[1].reads = a list of 5: is no text", [&] { task.key("reads").text(); });
  expect("tasks[1].reads = a list of 5: is no object", [&] { task.key("reads").key("a"); });
  expect("tasks[1].writes: is missing", [&] { task.key("writes"); });
  expect("tasks[1] = an object of 2: is no list", [&] { task.elements(); });
  expect("none = null: is neither true nor false", [&] { root.key("none").truth(); });
  expect("none = null: is no number", [&] { root.key("none").number(); });
  expect("tasks[1].b = 1e+300: is no key of this version", [&] { task.expect_keys({"reads"}); });
  expect("format: is missing", [&] { root.expect_format("garonne.graph", 1); });
  expect("tasks[1].reads[1] = x: is no integer", [&] { task.key("reads").indices(); });
}

TEST(JsonInput, FormatsAreNamedBeforeAnythingElse) {
  const std::string name = "g.json";
  const auto refused = [&](const std::string& text) {
    const nlohmann::json json = parse_json(text, name);
    return refusal([&] { JsonFile(json, name).root().expect_format("garonne.graph", 1); });
  };
  EXPECT_EQ(refused(R"({"format": "garonne.graph", "version": 1})"), "");
  EXPECT_EQ(refused(R"({"format": "garonne.chain"})"),
            "g.json: format = garonne.chain: is no garonne.graph");
  EXPECT_EQ(refused(R"({"format": 3})"), "g.json: format = 3: is no garonne.graph");
  EXPECT_EQ(refused(R"({"format": "garonne.graph", "version": "1"})"),
            "g.json: version = 1: this build reads version 1");
  EXPECT_EQ(refused("[]"), "g.json = a list of 0: is no object");
}

TEST(JsonInput, OwnersDecideTheKindOfError) {
  const nlohmann::json json = {{"a", {{"b", "x"}}}};
  const std::string name = "costs.json";
  const JsonFile file(json, name, FileOwner::Run);
  try {
    file.root().key("a").key("b").integer();
    ADD_FAILURE() << "read";
  } catch (const IoError& error) {
    EXPECT_EQ(error.code(), ExitCode::Data);
    EXPECT_EQ(error.path(), name);
    EXPECT_STREQ(error.what(), "costs.json: a.b = x: is no integer");
  }
  EXPECT_THROW(parse_json("[", name, FileOwner::Run), IoError);
}

// Whatever is done to a text, it is read or refused in one short message.
TEST(JsonInput, DamagedTextIsReadOrRefused) {
  const std::string good =
      R"({"format": "garonne.x", "list": [1, 2.5, {"key": "värde", "deep": [[[true, null]]]}]})";
  std::mt19937 random(11);
  int refused = 0;
  for (int trial = 0; trial < 5000; ++trial) {
    std::string text = good;
    for (unsigned n = random() % 4; n < 4; ++n) {
      const std::size_t place = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[place] = static_cast<char>(text[place] ^ (1 << (random() % 8)));
          break;
        case 1:
          text.erase(place, 1 + random() % 10);
          break;
        case 2:
          text.insert(place, text.substr(random() % text.size(), random() % 20));
          break;
        default:
          text[place] = "[]{}\",:0"[random() % 8];
      }
      if (text.empty()) text = "x";
    }
    const std::string message = parse_refusal(text);
    EXPECT_EQ(message.empty(), nlohmann::json::accept(text) || message.empty());
    EXPECT_LE(message.size(), 400U);
    refused += message.empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 3000);
}

}  // namespace
}  // namespace garonne
