// Which library does which product, on processors and on GPUs: the choice is by shape and kind of
// device, and known in every build.
#include "nn/gemm/product_library.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/error.hpp"
#include "nn/gemm/product.hpp"

namespace garonne::nn {
namespace {

constexpr DeviceKind kinds[] = {DeviceKind::Cpu, DeviceKind::Emulated, DeviceKind::Cuda};

ProductShape shape_of(ProductForm form, bool bias, std::int64_t rows = 64) {
  return {form, rows, 24, 16, Precision::BFloat16, bias};
}

std::string chosen(const Products& products, const ProductShape& shape, DeviceKind kind) {
  return std::string(products.choice(shape, kind).name());
}

TEST(ProductLibrary, EachHasANameOfItsOwnAndOneKindOfDevice) {
  std::set<std::string_view> names;
  for (const ProductLibrary* library : product_libraries()) {
    SCOPED_TRACE(library->name());
    EXPECT_TRUE(names.insert(library->name()).second);
    EXPECT_EQ(find_product_library(library->name()), library);
    EXPECT_NE(library->works_on(DeviceKind::Cpu), library->works_on(DeviceKind::Cuda));
    EXPECT_EQ(library->works_on(DeviceKind::Cpu), library->works_on(DeviceKind::Emulated));
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"MKL", "oneDNN", "OpenBLAS", "cuBLAS", "cuBLASLt"}));
}

TEST(ProductLibrary, WhatNothingWasChosenForGoesToTheDefaultOfTheKind) {
  const Products none;
  for (const DeviceKind kind : {DeviceKind::Cpu, DeviceKind::Emulated}) {
    for (const bool bias : {false, true})
      EXPECT_EQ(chosen(none, shape_of(ProductForm::Forward, bias), kind), "MKL");
  }
  EXPECT_EQ(chosen(none, shape_of(ProductForm::Forward, true), DeviceKind::Cuda), "cuBLASLt");
  EXPECT_EQ(chosen(none, shape_of(ProductForm::Forward, false), DeviceKind::Cuda), "cuBLAS");
  EXPECT_EQ(chosen(none, shape_of(ProductForm::InputGradient, false), DeviceKind::Cuda), "cuBLAS");
  EXPECT_EQ(chosen(none, shape_of(ProductForm::WeightGradient, false), DeviceKind::Cuda), "cuBLAS");
  // Which cuBLASLt does not multiply.
  EXPECT_EQ(chosen(none, shape_of(ProductForm::Forward, true, 1), DeviceKind::Cuda), "cuBLAS");
}

TEST(ProductLibrary, EveryDefaultWorksThereAndDoesTheProduct) {
  for (const DeviceKind kind : kinds) {
    for (const auto form :
         {ProductForm::Forward, ProductForm::InputGradient, ProductForm::WeightGradient}) {
      for (const Precision precision :
           {Precision::Float32, Precision::Float64, Precision::BFloat16}) {
        for (const std::int64_t size : {1, 7, 64}) {
          const ProductShape shape{form, size, size, size, precision, form == ProductForm::Forward};
          const ProductLibrary& library = default_product_library(shape, kind);
          EXPECT_TRUE(library.works_on(kind)) << library.name();
          EXPECT_TRUE(library.does(shape)) << library.name();
        }
      }
    }
  }
}

TEST(ProductLibrary, AChoiceIsForProductsWithAndWithoutABiasOfOneKindOfDevice) {
  Products of_gpu;
  of_gpu.choose(shape_of(ProductForm::Forward, true), *find_product_library("cuBLAS"));
  Products of_processor;
  of_processor.choose(shape_of(ProductForm::Forward, true), *find_product_library("oneDNN"));
  for (const bool bias : {false, true}) {
    const ProductShape shape = shape_of(ProductForm::Forward, bias);
    EXPECT_TRUE(of_gpu.has(shape));
    EXPECT_EQ(chosen(of_gpu, shape, DeviceKind::Cuda), "cuBLAS");
    EXPECT_EQ(chosen(of_gpu, shape, DeviceKind::Cpu), "MKL");
    EXPECT_EQ(chosen(of_processor, shape, DeviceKind::Cpu), "oneDNN");
    EXPECT_EQ(chosen(of_processor, shape, DeviceKind::Emulated), "oneDNN");
    EXPECT_EQ(chosen(of_processor, shape, DeviceKind::Cuda), bias ? "cuBLASLt" : "cuBLAS");
  }
}

TEST(ProductLibrary, CandidatesAreOfTheKind) {
  for (const DeviceKind kind : kinds) {
    const auto candidates = product_candidates(shape_of(ProductForm::Forward, true), kind);
    for (const ProductLibrary* library : candidates)
      EXPECT_TRUE(library->works_on(kind)) << library->name();
    // A build without CUDA has none of a GPU.
    EXPECT_TRUE(kind == DeviceKind::Cuda || !candidates.empty());
  }
}

TEST(ProductLibrary, ChoicesOfAnotherKindAreLeftOut) {
  const nlohmann::json choices = {{"forward float32 1x1x1", "OpenBLAS"},
                                  {"forward float32 2x2x2", "cuBLASLt"},
                                  {"forward float32 3x3x3", "MKL"},
                                  {"forward float32 4x4x4", "cuBLAS"}};
  const nlohmann::json of_processor = choices_for(DeviceKind::Cpu, choices);
  EXPECT_EQ(of_processor, (nlohmann::json{{"forward float32 1x1x1", "OpenBLAS"},
                                          {"forward float32 3x3x3", "MKL"}}));
  EXPECT_EQ(choices_for(DeviceKind::Emulated, choices), of_processor);
  const nlohmann::json of_gpu = choices_for(DeviceKind::Cuda, choices);
  EXPECT_EQ(of_gpu, (nlohmann::json{{"forward float32 2x2x2", "cuBLASLt"},
                                    {"forward float32 4x4x4", "cuBLAS"}}));
  EXPECT_EQ(choices_for(DeviceKind::Cpu, of_gpu), nlohmann::json::object());
  EXPECT_EQ(choices_for(DeviceKind::Cpu, nlohmann::json()), nlohmann::json::object());
}

TEST(ProductLibrary, NamesThatNoLibraryHasAreRefusedOnEveryKind) {
  for (const DeviceKind kind : kinds) {
    const nlohmann::json choices =
        choices_for(kind, {{"forward float32 1x1x1", "cuBLASXt"}, {"forward float32 2x2x2", 7}});
    EXPECT_EQ(choices.size(), 2U);
    const auto refusal = Products::refusal_of(choices);
    ASSERT_TRUE(refusal.has_value());
    EXPECT_NE(std::string(refusal->what()).find("cuBLASXt"), std::string::npos);
    EXPECT_THROW(Products::from_json(choices), ConfigError);
  }
}

TEST(ProductLibrary, OfAGpuIsRefusedWhereThereIsNone) {
  for (const char* name : {"cuBLAS", "cuBLASLt"}) {
    const bool here = find_product_library(name)->available();
    const auto refusal = Products::refusal_of({{"forward float32 2x2x2", name}});
    EXPECT_EQ(refusal.has_value(), !here);
    if (refusal) {
      EXPECT_NE(std::string(refusal->what()).find(name), std::string::npos);
      EXPECT_NE(std::string(refusal->what()).find("not available here"), std::string::npos);
    }
  }
}

// Plans of GPUs are made on processors, too.
TEST(ProductLibrary, OfGpusTakesNoBytesBeside) {
  Declaration declaration;
  declaration.device.kind = DeviceKind::Cuda;
  for (const char* name : {"cuBLAS", "cuBLASLt"}) {
    const ProductShape shape = shape_of(ProductForm::WeightGradient, false);
    EXPECT_EQ(find_product_library(name)->workspace_bytes(declaration, shape), 0) << name;
  }
  const ProductTransients transients = product_transients(declaration, 64, 24, 16);
  EXPECT_EQ(
      transients.forward_bytes + transients.input_gradient_bytes + transients.weight_gradient_bytes,
      0);
}

}  // namespace
}  // namespace garonne::nn
