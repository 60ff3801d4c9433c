// What a run goes on with: choices of its checkpoint are kept on the kind of device that made them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "dist/session.hpp"
#include "exec/profile/profile.hpp"
#include "nn/gemm/product.hpp"
#include "train/scratch.hpp"
#include "train/setup/cluster.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {
namespace {

Setup tiny_setup() {
  RunConfig config;
  config.model.layers = 1;
  config.model.hidden = 16;
  config.model.heads = 2;
  config.model.sequence = 8;
  config.train.micro_batch = 1;
  config.train.global_batch = 1;
  config.evaluation.batches = 0;
  DataFacts facts;
  facts.vocabulary = 65;
  return make_setup(config, facts, 1);
}

TEST(ProductChoices, OfAGpuSayNothingAboutAProcessorAndOnesOwnAreKept) {
  const test::Scratch scratch;
  ::setenv("GARONNE_CACHE", scratch.path("cache").c_str(), 1);
  const train::Setup setup = tiny_setup();
  const std::vector<std::string> keys =
      exec::product_keys(setup.model, setup.declaration.precision);
  ASSERT_GE(keys.size(), 3U);
  RunDevice processor;
  dist::Session alone = dist::Session::single();
  const auto obtained = [&](const nlohmann::json& choices) {
    return obtain_costs(setup, 1, choices, processor, alone).products;
  };
  const nlohmann::json measured = obtained(nlohmann::json());
  for (const std::string& key : keys) EXPECT_TRUE(measured.contains(key)) << key;

  nlohmann::json of_gpu;
  for (const std::string& key : keys) of_gpu[key] = "cuBLASLt";
  EXPECT_EQ(obtained(of_gpu), measured);

  // Both of a library of its own, whichever is the faster.
  for (const char* name : {"MKL", "oneDNN"}) {
    nlohmann::json own = of_gpu;
    own[keys[0]] = name;
    const nlohmann::json kept = obtained(own);
    EXPECT_EQ(kept.at(keys[0]), name);
    EXPECT_EQ(kept.at(keys[1]), measured.at(keys[1]));
    EXPECT_FALSE(nn::Products::refusal_of(kept).has_value());
  }

  // What no library is called is left for who refuses it.
  const nlohmann::json unknown = obtained({{keys[0], "cuBLASXt"}});
  EXPECT_TRUE(nn::Products::refusal_of(unknown).has_value());
  ::unsetenv("GARONNE_CACHE");
}

}  // namespace
}  // namespace garonne::train
