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

std::string decays_of(const std::string& groups, const std::string& no_decay = "") {
  std::vector<plan::ParameterSpec> parameters = some_parameters();
  apply_no_decay(no_decay, parameters);
  apply_weight_decays(groups, no_decay, parameters);
  std::string text;
  for (const auto& parameter : parameters) {
    text += parameter.weight_decay ? std::to_string(*parameter.weight_decay).substr(0, 4) : "-";
    text += parameter.decays ? "d " : "  ";
  }
  return text;
}

TEST(WeightDecays, AreOfParametersByTheFirstPartThatFits) {
  EXPECT_EQ(decays_of(""), "-d -d -d -d -  ");
  EXPECT_EQ(decays_of("qkv=0.5"), "-d 0.50d 0.50d -d -  ");
  EXPECT_EQ(decays_of("layer.1.qkv=0.25 , qkv = 0"), "-d 0.00  0.25d -d -  ");
  EXPECT_EQ(decays_of("norm=0.01"), "-d -d -d -d 0.01d ") << "also what decays by nothing else";
  EXPECT_EQ(decays_of("layer=0.5", "qkv"), "-d -  -  0.50d -  ");
}

TEST(WeightDecays, RefuseWhatSaysNothing) {
  const auto refusal = [](const std::string& groups, const std::string& no_decay = "") {
    try {
      decays_of(groups, no_decay);
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key(), "optimizer.weight_decays");
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(refusal("qvk=1").find("did you mean qkv?"), std::string::npos);
  for (const char* text : {"qkv", "qkv=0.1,down"})
    EXPECT_NE(refusal(text).find("embedding=0.01"), std::string::npos) << text;
  for (const char* text : {"qkv=", "qkv=x", "qkv=-1", "qkv=1x", "qkv=nan", "qkv=inf"})
    EXPECT_NE(refusal(text).find("number >= 0"), std::string::npos) << text;
  EXPECT_NE(refusal("=1").find("empty part"), std::string::npos);
  EXPECT_NE(refusal("qkv=1,layer.0.qkv=2").find("put it first"), std::string::npos);
  EXPECT_NE(refusal("qkv=1", "qkv").find("optimizer.no_decay"), std::string::npos);
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
