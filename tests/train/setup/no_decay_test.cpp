#include "train/setup/no_decay.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {
namespace {

std::vector<plan::ParameterSpec> some_parameters() {
  std::vector<plan::ParameterSpec> parameters;
  for (const char* name : {"token_embedding.weight", "layer.0.qkv.weight", "layer.1.qkv.weight",
                           "layer.1.down.weight", "final_norm.weight"}) {
    plan::ParameterSpec parameter;
    parameter.name = name;
    parameter.decays = parameter.name != "final_norm.weight";
    parameters.push_back(parameter);
  }
  return parameters;
}

std::string decaying(const std::string& parts) {
  std::vector<plan::ParameterSpec> parameters = some_parameters();
  apply_no_decay(parts, parameters);
  std::string marks;
  for (const auto& parameter : parameters) marks += parameter.decays ? 'd' : '-';
  return marks;
}

TEST(NoDecay, IsOfParametersByPartsOfTheirNames) {
  EXPECT_EQ(decaying(""), "dddd-");
  EXPECT_EQ(decaying("embedding"), "-ddd-");
  EXPECT_EQ(decaying("qkv , token_embedding.weight"), "---d-");
  EXPECT_EQ(decaying("layer.1."), "dd---");
  EXPECT_EQ(decaying("norm"), "dddd-");
}

TEST(NoDecay, RefusesWhatIsInNoName) {
  const auto refusal = [](const std::string& parts) {
    try {
      decaying(parts);
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key(), "optimizer.no_decay");
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal("embedding,qvk").find("did you mean qkv?"), std::string::npos);
  EXPECT_NE(refusal("bias").find("down, final_norm, layer, qkv, token_embedding, weight"),
            std::string::npos);
  EXPECT_NE(refusal("qkv,,down").find("empty part"), std::string::npos);
}

// Of every stage of a pipeline, since each is cut from the whole.
TEST(NoDecay, HoldsInAllStages) {
  RunConfig config;
  config.model.layers = 2;
  config.model.hidden = 16;
  config.model.heads = 2;
  config.model.sequence = 8;
  config.train.global_batch = 4;
  config.train.micro_batch = 1;
  config.grid.pipeline = 2;
  config.memory.budget = std::int64_t{64} << 20;
  config.optimizer.no_decay = "embedding,qkv";
  DataFacts facts;
  facts.vocabulary = 20;
  const auto setup = make_setup(config, facts, 1);
  int kept = 0;
  for (int stage = 0; stage < 2; ++stage) {
    for (const auto& parameter : setup_of_stage(setup, stage).model.graph.parameters) {
      const bool named = parameter.name.find("embedding") != std::string::npos ||
                         parameter.name.find("qkv") != std::string::npos;
      EXPECT_EQ(parameter.decays, parameter.shape.size() >= 2 && !named) << parameter.name;
      kept += parameter.decays ? 1 : 0;
    }
  }
  EXPECT_EQ(kept, 2 * 3);
  for (const auto& parameter : setup.declared->parameters) {
    if (parameter.name == "layer.0.qkv.weight") {
      EXPECT_FALSE(parameter.decays);
    }
  }
}

}  // namespace
}  // namespace garonne::train
