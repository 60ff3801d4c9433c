// Values of keys come from the registries of the rooms.
#include "train/setup/config_choices.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "train/setup/planning.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::train {
namespace {

TEST(ConfigChoices, HaveEveryDefaultAndAreRead) {
  const Choices choices = config_choices();
  for (const KeySpec& key : config_keys(choices)) {
    const auto registered = choices.find(key.name);
    if (registered == choices.end()) continue;
    const std::vector<std::string>& names = registered->second;
    EXPECT_NE(std::find(names.begin(), names.end(), key.get(RunConfig())), names.end()) << key.name;
    for (const std::string& name : names) {
      const RunConfig read = parse_config("", "run.toml", {{key.name, name}}, choices);
      EXPECT_EQ(key.get(read), name);
    }
  }
}

TEST(ConfigChoices, AreThoseOfTheDocuments) {
  const Choices choices = config_choices();
  using Names = std::vector<std::string>;
  EXPECT_EQ(choices.at("model.kind"),
            (Names{"gpt", "llama", "fno", "tfno", "ufno", "afno", "sfno"}));
  EXPECT_EQ(choices.at("grid.transport"), (Names{"auto", "mpi", "nccl"}));
  EXPECT_EQ(choices.at("train.loss"),
            (Names{"auto", "cross-entropy", "relative-l2", "relative-l2-channels", "h1",
                   "squared-l2", "area-l2", "crps"}));
  EXPECT_EQ(choices.at("optimizer.name"),
            (Names{"adafactor", "adamw", "lamb", "lars", "lion", "sgd"}));
  EXPECT_EQ(choices.at("optimizer.schedule"),
            (Names{"cosine", "linear", "constant", "warmup-stable-decay"}));
  EXPECT_EQ(choices.at("memory.plan").front(), "auto");
  EXPECT_EQ(choices.at("grid.schedule").size(), 10U);
}

TEST(ConfigChoices, MistypedValuesAreRefusedWhereTheFileIsRead) {
  for (const auto& [key, mistyped, near] :
       {std::tuple{"memory.plan", "rotr", "rotor"}, std::tuple{"model.kind", "tfn", "tfno"},
        std::tuple{"grid.schedule", "zb-h3", "zb-h1"}, std::tuple{"train.loss", "h2", "h1"},
        std::tuple{"optimizer.name", "adam", "adamw"}}) {
    try {
      parse_config("", "run.toml", {{key, mistyped}}, config_choices());
      ADD_FAILURE() << key << " = " << mistyped << " was read";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key(), key);
      EXPECT_NE(error.reason().find(std::string("did you mean ") + near + "?"), std::string::npos)
          << error.what();
    }
  }
}

TEST(WorkloadKinds, FollowTheKindOfTheModel) {
  RunConfig config;
  config.model.sequence = 12;
  const Choices choices = config_choices();
  for (const std::string& name : choices.at("model.kind")) {
    const WorkloadKind& kind = workload_kind(name);
    const bool tokens = name == "gpt" || name == "llama";
    EXPECT_EQ(&kind, tokens ? &text_kind() : &fields_kind());
    EXPECT_EQ(kind.tokens_per_sample(config), tokens ? 12 : 0);
    EXPECT_NO_THROW(expect_model_of(kind, name, "--generate", ""));
    const WorkloadKind& other = tokens ? fields_kind() : text_kind();
    EXPECT_THROW(expect_model_of(other, name, "--generate", "x"), ConfigError);
  }
}

}  // namespace
}  // namespace garonne::train
