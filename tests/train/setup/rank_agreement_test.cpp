#include "train/setup/rank_agreement.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nn/gemm/product.hpp"

namespace garonne::train::test {
namespace {

// A rank whose processor multiplies bfloat16 plans other bytes, and sums otherwise, than one whose
// processor does not.
TEST(RankAgreement, ProcessorsAreAlikeForBfloat16) {
  const auto of_products = [](const std::string& precision) {
    RunConfig config;
    config.train.precision = precision;
    std::vector<std::string> values;
    for (const dist::Fact& fact : machine_facts(config)) {
      if (fact.name == "products of bfloat16") values.push_back(fact.value);
    }
    return values;
  };
  EXPECT_EQ(of_products("bfloat16"),
            std::vector<std::string>{nn::multiplies_bfloat16() ? "by the processor"
                                                               : "in blocks of float32"});
  EXPECT_TRUE(of_products("float32").empty());
}

}  // namespace
}  // namespace garonne::train::test
