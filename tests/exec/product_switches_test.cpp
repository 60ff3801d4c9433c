// How products of GPUs round, as the tensor library is told in every build.
#include "exec/product_switches.hpp"

#include <ATen/Context.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.hpp"

namespace garonne::exec {
namespace {

bool cublas_rounds() {
  return at::globalContext().allowTF32CuBLAS();
}

bool cudnn_rounds() {
  return at::globalContext().allowTF32CuDNN();
}

TEST(ProductSwitches, SayBothWhateverWasSaidBefore) {
  for (const ProductRounding rounding : {ProductRounding::Ieee, ProductRounding::Tf32}) {
    for (const bool before : {false, true}) {
      // What TORCH_ALLOW_TF32_CUBLAS_OVERRIDE does at the start of a process.
      at::globalContext().setAllowTF32CuBLAS(before);
      at::globalContext().setAllowTF32CuDNN(before);
      set_product_rounding(rounding);
      EXPECT_EQ(cublas_rounds(), rounding == ProductRounding::Tf32) << before;
      EXPECT_EQ(cudnn_rounds(), rounding == ProductRounding::Tf32) << before;
    }
  }
  set_product_rounding(ProductRounding::Ieee);
}

TEST(ProductSwitches, AnOverrideThatSaysOtherwiseIsRefusedByName) {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    EXPECT_NO_THROW(check_rounding_override(value, ProductRounding::Ieee));
    EXPECT_NO_THROW(check_rounding_override(value, ProductRounding::Tf32));
  }
  EXPECT_NO_THROW(check_rounding_override("0", ProductRounding::Ieee));
  EXPECT_THROW(check_rounding_override("1", ProductRounding::Ieee), ConfigError);
  // Nor is it said what another value does.
  EXPECT_THROW(check_rounding_override("1", ProductRounding::Tf32), ConfigError);
  try {
    check_rounding_override("0", ProductRounding::Tf32);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.key(), "train.products");
    EXPECT_NE(std::string(error.what()).find("NVIDIA_TF32_OVERRIDE"), std::string::npos);
  }
}

}  // namespace
}  // namespace garonne::exec
