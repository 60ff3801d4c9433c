#include "plan/chain/chain_json.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/json_input.hpp"
#include "plan/chain/random_chains.hpp"

namespace garonne::plan::test {
namespace {

TEST(ChainJson, ReadsWhatItWrites) {
  for (int n = 0; n < 40; ++n) {
    const Chain chain =
        random_chain(n % chain_families, static_cast<std::uint64_t>(n), 1 + n % 5, 3);
    const std::string text = to_json(chain).dump();
    EXPECT_EQ(to_json(chain_from_json(parse_json(text, "file"), "file")).dump(), text);
  }
}

// Takes away, renames and spoils every key of a chain in turn; the message names it.
class Spoiler {
 public:
  void walk(nlohmann::json& whole, nlohmann::json& part) {
    if (part.is_array()) {
      for (auto& element : part) walk(whole, element);
      return;
    }
    if (!part.is_object()) return;
    std::vector<std::string> keys;
    for (const auto& [key, value] : part.items()) keys.push_back(key);
    for (const auto& key : keys) {
      const nlohmann::json kept = part[key];
      part.erase(key);
      if (key != "gradient_bytes") refused(whole, key);
      part["x" + key] = kept;
      refused(whole, key == "gradient_bytes" ? "x" + key : key);
      part.erase("x" + key);
      for (const nlohmann::json& bad :
           {nlohmann::json(nullptr), nlohmann::json(-1), nlohmann::json(1e300), nlohmann::json("x"),
            nlohmann::json(std::uint64_t{1} << 63), nlohmann::json::array({1}),
            nlohmann::json::object()}) {
        if (key == "name" && bad.is_string()) continue;
        part[key] = bad;
        refused(whole, key);
      }
      part[key] = kept;
      walk(whole, part[key]);
    }
  }
  int cases = 0;

 private:
  void refused(const nlohmann::json& whole, const std::string& key) {
    ++cases;
    try {
      chain_from_json(whole, "file");
      ADD_FAILURE() << "accepted: " << whole.dump();
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos)
          << key << ": " << error.what();
    }
  }
};

TEST(ChainJson, RefusesByName) {
  nlohmann::json chain = nlohmann::json::parse(to_json(random_chain(1, 3, 2, 2)).dump());
  chain["blocks"][0]["gradient_bytes"] = 3;
  EXPECT_NO_THROW(chain_from_json(chain, "file"));
  Spoiler spoiler;
  spoiler.walk(chain, chain);
  EXPECT_GT(spoiler.cases, 200);
}

void expect_refused(const std::string& text, const std::string& word) {
  try {
    chain_from_json(parse_json(text, "file"), "file");
    ADD_FAILURE() << "accepted: " << text;
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
  }
}

TEST(ChainJson, RefusesTextThatIsCutOffAnywhere) {
  const std::string text = to_json(random_chain(1, 3, 2, 2)).dump();
  for (std::size_t length = 0; length < text.size(); ++length)
    expect_refused(text.substr(0, length), "file");
}

TEST(ChainJson, RefusesWhatJsonItselfForgives) {
  const std::string text = to_json(random_chain(1, 3, 1, 1)).dump();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    const std::size_t place = changed.find(from);
    EXPECT_NE(place, std::string::npos);
    return changed.replace(place, from.size(), to);
  };
  expect_refused(with("\"input_bytes\":", "\"input_bytes\":1,\"input_bytes\":"), "input_bytes");
  expect_refused(with("\"seconds\":", "\"seconds\":NaN,\"x\":"), "seconds");
  expect_refused(with("\"seconds\":", "\"seconds\":1e999,\"x\":"), "seconds");
  expect_refused(with("\"version\":1", "\"version\":2"), "version");
  expect_refused(with("\"garonne.chain\"", "\"garonne.costs\""), "format");
}

TEST(ChainJson, RefusesTotalsNamesAndOptions) {
  nlohmann::json chain = nlohmann::json::parse(to_json(random_chain(1, 8, 3, 3)).dump());
  nlohmann::json twice = chain;
  auto& options = twice["blocks"][0]["options"];
  options.push_back(options[0]);
  expect_refused(twice.dump(), "name");
  nlohmann::json small = chain;
  small["blocks"][1]["output_bytes"] = 1000;
  expect_refused(small.dump(), "blocks[1].options[0].saved_bytes");
  nlohmann::json none = chain;
  none["blocks"] = nlohmann::json::array();
  expect_refused(none.dump(), "blocks");
  nlohmann::json empty = chain;
  empty["blocks"][2]["options"] = nlohmann::json::array();
  expect_refused(empty.dump(), "blocks[2].options");
  nlohmann::json huge = chain;
  huge["blocks"][0]["gradient_bytes"] = std::int64_t{1} << 48;
  while (huge["blocks"].size() < 2048) huge["blocks"].push_back(huge["blocks"][0]);
  EXPECT_NO_THROW(chain_from_json(huge, "file"));
  for (auto& block : huge["blocks"]) {
    block["output_bytes"] = std::int64_t{1} << 48;
    block["forward"]["transient_bytes"] = std::int64_t{1} << 48;
    for (auto& option : block["options"]) {
      option["saved_bytes"] = std::int64_t{1} << 48;
      option["backward"]["transient_bytes"] = std::int64_t{1} << 48;
    }
  }
  expect_refused(huge.dump(), "blocks");
  huge["blocks"].push_back(huge["blocks"][0]);
  expect_refused(huge.dump(), "blocks");
}

}  // namespace
}  // namespace garonne::plan::test
