// The registry of models: every kind makes, describes and refuses by its own row.
#include "nn/model_kind.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"

namespace garonne::nn {
namespace {

bool has_key(const ModelKind& kind, const std::string& key) {
  return std::find(kind.keys.begin(), kind.keys.end(), key) != kind.keys.end();
}

RunConfig small_config(const ModelKind& kind) {
  RunConfig config;
  config.model.kind = kind.name;
  // Those of levels are not asked for.
  if (has_key(kind, "layers")) config.model.layers = 2;
  config.model.hidden = 8;
  if (has_key(kind, "modes")) config.model.modes = {4, 4};
  if (kind.name == "afno") config.model.patch = 2;
  config.train.micro_batch = 1;
  return config;
}

FieldShape small_fields() {
  FieldShape fields;
  fields.input_channels = 3;
  fields.target_channels = 2;
  fields.points = {8, 16};
  fields.grid = "equiangular";
  return fields;
}

ModelRequest request_of(const RunConfig& config, const FieldShape& fields,
                        const Declaration& declaration) {
  return {.config = config, .vocabulary = 31, .fields = fields, .declaration = declaration};
}

class EveryKind : public testing::TestWithParam<std::string> {
 protected:
  const ModelKind& kind_ = model_kind(GetParam());
  FieldShape fields_ = small_fields();
  Declaration declaration_;

  // The key of the refusal; empty where there is none.
  std::string refused(const RunConfig& config) const {
    try {
      kind_.make(request_of(config, fields_, declaration_));
      return "";
    } catch (const ConfigError& error) {
      return error.key();
    }
  }
};

TEST_P(EveryKind, IsMadeAndDescribed) {
  const RunConfig config = small_config(kind_);
  const ModelRequest request = request_of(config, fields_, declaration_);
  const Model model = kind_.make(request);
  EXPECT_GE(model.graph.loss, 0);
  EXPECT_EQ(model.batch, 1);
  const std::string text = kind_.describe(request);
  const std::string sizes =
      kind_.name == "ufno" ? "2 levels, 5 layers, hidden 8" : "2 layers, hidden 8";
  EXPECT_NE(text.find(sizes), std::string::npos) << text;
  const bool tokens = kind_.learns_from == LearnsFrom::Tokens;
  EXPECT_NE(text.find(tokens ? "vocabulary 31" : "8 x 16 points"), std::string::npos) << text;
}

TEST_P(EveryKind, RefusesTheKeysOfOthers) {
  int others = 0;
  for (const KeySpec& key : config_keys()) {
    if (key.name.rfind("model.", 0) != 0 || key.name == "model.kind") continue;
    const std::string name = key.name.substr(6);
    if (has_key(kind_, name)) continue;
    RunConfig config = small_config(kind_);
    const std::string before = key.get(config);
    switch (key.type) {
      case KeyType::Switch:
        key.set(config, before == "true" ? "false" : "true");
        break;
      case KeyType::Integer:
        key.set(config, std::to_string(std::stoll(before) + 1));
        break;
      case KeyType::Real:
        key.set(config, std::to_string(std::stod(before) + 0.25));
        break;
      case KeyType::List:
        key.set(config, "3,3");
        break;
      default:
        key.set(config, key.range.substr(key.range.rfind(", ") + 2));
        break;
    }
    ASSERT_NE(key.get(config), before) << key.name;
    EXPECT_EQ(refused(config), key.name);
    ++others;
  }
  EXPECT_GT(others, 10);
}

TEST_P(EveryKind, TakesItsOwnLossesOnly) {
  ASSERT_FALSE(kind_.losses.empty());
  for (const std::string& loss : loss_names()) {
    RunConfig config = small_config(kind_);
    config.train.loss = loss;
    fields_.members = loss == "crps" ? 2 : 1;
    fields_.noise = loss == "crps" ? 0.1 : 0;
    const bool own = loss == "auto" || std::find(kind_.losses.begin(), kind_.losses.end(), loss) !=
                                           kind_.losses.end();
    EXPECT_EQ(refused(config), own ? "" : "train.loss") << loss;
  }
}

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const ModelKind& kind : model_kinds()) result.push_back(kind.name);
  return result;
}

INSTANTIATE_TEST_SUITE_P(Models, EveryKind, testing::ValuesIn(names()),
                         [](const auto& name) { return name.param; });

TEST(Models, AreNamedOnce) {
  const std::vector<std::string> all = names();
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
  EXPECT_EQ(all.front(), RunConfig().model.kind);
  EXPECT_THROW(model_kind("gpt-2"), ConfigError);
}

TEST(Models, KeysAreKeysOfTheConfiguration) {
  std::set<std::string> known;
  for (const KeySpec& key : config_keys()) known.insert(key.name);
  std::set<std::string> used = {"model.kind"};
  for (const ModelKind& kind : model_kinds()) {
    for (const std::string& key : kind.keys) {
      EXPECT_TRUE(known.contains("model." + key)) << kind.name << " " << key;
      used.insert("model." + key);
    }
  }
  for (const std::string& key : known) {
    if (key.starts_with("model.")) {
      EXPECT_TRUE(used.contains(key)) << key << " is nobody's";
    }
  }
}

TEST(Models, OfTokensRefuseWhatIsOfFields) {
  const FieldShape fields;
  const Declaration declaration;
  for (const char* name : {"train.push_forward", "train.noise", "train.members", "data.missing"}) {
    RunConfig config = small_config(model_kind("gpt"));
    for (const KeySpec& key : config_keys()) {
      if (key.name == name) key.set(config, key.type == KeyType::Text ? "mask" : "2");
    }
    try {
      model_kind("gpt").make(request_of(config, fields, declaration));
      ADD_FAILURE() << "no error for " << name;
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key(), name);
    }
  }
}

}  // namespace
}  // namespace garonne::nn
