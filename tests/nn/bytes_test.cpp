// What nodes declare, against what the counting allocator sees.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "exec/profile/profile.hpp"
#include "kernels/product.hpp"
#include "nn/compute_session.hpp"
#include "nn/declared_bytes.hpp"
#include "nn/element_type.hpp"
#include "nn/gpt/gpt.hpp"
#include "nn/precisions.hpp"

namespace garonne::nn {
namespace {

struct Shape {
  std::int64_t sequence;
  std::int64_t heads;
  std::int64_t head_size;
  std::int64_t batch;
};

std::string describe(const Shape& shape) {
  return "sequence " + std::to_string(shape.sequence) + " heads " + std::to_string(shape.heads) +
         "x" + std::to_string(shape.head_size) + " batch " + std::to_string(shape.batch);
}

TEST(NumberType, HasTheBytesOfItsTensors) {
  for (const NumberType type :
       {NumberType::Float32, NumberType::Float64, NumberType::BFloat16, NumberType::Int64}) {
    const auto bytes = static_cast<std::int64_t>(at::elementSize(scalar_type_of(type)));
    EXPECT_EQ(number_bytes(type), bytes) << number_type_name(type);
  }
  for (const Precision precision : {Precision::Float32, Precision::Float64, Precision::BFloat16}) {
    EXPECT_EQ(number_bytes(compute_type(precision)), compute_bytes(precision));
    EXPECT_EQ(number_bytes(state_type(precision)), state_bytes(precision));
    EXPECT_STREQ(number_type_name(compute_type(precision)), precision_name(precision));
  }
}

TEST(Products, SayWhichLibraryCannotBeUsed) {
  Products products;
  products.choose({ProductForm::Forward, 3, 4, 5, Precision::Float32},
                  *product_libraries().front());
  nlohmann::json json = products.to_json();
  EXPECT_FALSE(Products::refusal_of(json).has_value());
  EXPECT_EQ(Products::from_json(json).to_json(), products.to_json());
  for (const nlohmann::json& name : {nlohmann::json("no library"), nlohmann::json(7)}) {
    json["forward float32 1x1x1"] = name;
    const auto refusal = Products::refusal_of(json);
    ASSERT_TRUE(refusal.has_value());
    EXPECT_NE(std::string(refusal->what()).find(name.dump()), std::string::npos);
    EXPECT_THROW(Products::from_json(json), ConfigError);
  }
}

// All products by one library, so that nothing is left to what happens to be fastest.
nlohmann::json products_of(const Model& model, Precision precision, const ProductLibrary& wanted) {
  Products products;
  for (const auto& parameter : model.graph.parameters) {
    if (parameter.shape.size() != 2) continue;
    for (const auto form :
         {ProductForm::Forward, ProductForm::InputGradient, ProductForm::WeightGradient}) {
      const ProductShape shape{form, model.batch * model.sequence, parameter.shape[0],
                               parameter.shape[1], precision};
      const auto candidates = product_candidates(shape, DeviceKind::Cpu);
      const bool possible =
          std::find(candidates.begin(), candidates.end(), &wanted) != candidates.end();
      products.choose(shape, possible ? wanted : *product_libraries().front());
    }
  }
  return products.to_json();
}

void check_declared(const Shape& shape, Precision precision, int threads, double dropout,
                    const std::string& name, double attention_dropout = 0) {
  const ProductLibrary& library = *find_product_library(name);
  SCOPED_TRACE(describe(shape) + " " + precision_name(precision) + " threads " +
               std::to_string(threads) + " dropout " + std::to_string(dropout) + " and " +
               std::to_string(attention_dropout) + " " + name);
  garonne::test::use_threads(threads);
  Declaration declaration;
  declaration.precision = precision;
  declaration.threads = threads;
  const GptSizes sizes{1,
                       shape.heads * shape.head_size,
                       shape.heads,
                       shape.sequence,
                       53,
                       dropout,
                       attention_dropout};
  const Model model = make_gpt(sizes, shape.batch, declaration);
  plan::CostTable table;
  table.products = products_of(model, precision, library);
  try {
    exec::profile_model(Queue(), model, declaration, table, [](int, int) {});
  } catch (const std::exception& error) {
    ADD_FAILURE() << std::string(error.what()).substr(0, 200);
    garonne::test::use_threads(2);
    return;
  }
  std::set<std::string> kinds;
  for (const auto& node : model.graph.nodes) {
    SCOPED_TRACE(node.name);
    kinds.insert(node.kind);
    ASSERT_EQ(table.rows.count(node.cost_key), 1U);
    const plan::CostRow& row = table.rows.at(node.cost_key);
    std::string pinned;
    for (std::size_t i = 0; i < node.pins_inputs.size(); ++i) {
      if (node.pins_inputs[i])
        pinned += (pinned.empty() ? "input " : ", input ") + std::to_string(i);
    }
    if (node.pins_output) pinned += pinned.empty() ? "output" : ", output";
    EXPECT_EQ(row.pinned, pinned);
    // The workspaces of oneDNN, which does all bfloat16 products, are declared as a bound,
    // everything else exactly.
    const bool multiplies =
        node.kind == "linear" || node.kind == "loss_head" || node.kind == "attention";
    const bool bound = multiplies && (precision == Precision::BFloat16 || name == "oneDNN");
    garonne::test::expect_declared_bytes(row, model, declaration, node, bound);
    EXPECT_EQ(row.backward_weight_seconds > 0, node.splits_backward);
    EXPECT_GT(row.forward_seconds, 0);
    EXPECT_GT(row.forward_keep_seconds, 0);
    EXPECT_GT(row.backward_seconds, 0);
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"embedding", "layer_norm", "linear", "attention",
                                          "dropout_add", "gelu", "loss_head"}));
  garonne::test::use_threads(2);
}

TEST(DeclaredBytes, AreTheMeasuredOnesOnTwoThreads) {
  const Shape shapes[] = {
      {16, 2, 8, 2}, {128, 2, 32, 2}, {200, 2, 64, 1}, {513, 2, 8, 1}, {1024, 2, 64, 1}};
  for (const auto& shape : shapes) {
    for (const Precision precision : precisions) check_declared(shape, precision, 2, 0.0, "MKL");
  }
}

TEST(DeclaredBytes, AreTheMeasuredOnesOnOneThread) {
  const Shape shapes[] = {
      {16, 1, 32, 3}, {128, 3, 8, 1}, {200, 2, 8, 2}, {513, 1, 64, 1}, {1024, 1, 32, 1}};
  for (const auto& shape : shapes) {
    for (const Precision precision : precisions) check_declared(shape, precision, 1, 0.1, "MKL");
  }
}

// Roundings show where nothing is a multiple of anything.
TEST(DeclaredBytes, OfOddShapes) {
  const Shape shapes[] = {{31, 3, 7, 1}, {65, 1, 17, 3}, {7, 1, 3, 1}, {1, 2, 5, 1}};
  for (const auto& shape : shapes) {
    for (const Precision precision : precisions) {
      for (const int threads : {1, 2}) check_declared(shape, precision, threads, 0.1, "MKL");
    }
  }
}

// A plan of long sequences has no room for all scores, of which there would be 16 MiB a head.
TEST(DeclaredBytes, WithDropoutOfAttention) {
  const Shape shapes[] = {{31, 3, 7, 2}, {130, 2, 16, 2}, {1, 2, 5, 1}};
  for (const auto& shape : shapes) {
    for (const Precision precision : precisions) {
      for (const int threads : {1, 2}) check_declared(shape, precision, threads, 0.1, "MKL", 0.2);
    }
  }
  check_declared({2048, 1, 8, 1}, Precision::Float32, 2, 0, "MKL", 0.2);
}

TEST(DeclaredBytes, DoNotDependOnTheLibraryOfProducts) {
  for (const Precision precision : precisions) {
    check_declared({128, 2, 32, 2}, precision, 2, 0.1, "oneDNN");
    if (kernels::openblas_available()) {
      check_declared({128, 2, 32, 2}, precision, 2, 0.1, "OpenBLAS");
    }
  }
}

// Without a choice the profile makes one for every product, and keeps it.
TEST(Profile, ChoosesALibraryForEveryProduct) {
  const GptSizes sizes{2, 16, 2, 16, 20, 0};
  const Declaration declaration;
  const Model model = make_gpt(sizes, 2, declaration);
  plan::CostTable table;
  int last = 0;
  int all = 0;
  exec::profile_model(Queue(), model, declaration, table, [&](int done, int total) {
    EXPECT_EQ(done, last + 1);
    last = done;
    all = total;
  });
  EXPECT_EQ(last, all);
  EXPECT_GT(table.product_roof, 0);
  // Four linear layers and the head, three products each.
  EXPECT_EQ(table.products.size(), 15U);
  const Products products = Products::from_json(table.products);
  EXPECT_EQ(nlohmann::json(products.to_json()), table.products);
  // Nothing is measured twice: equal nodes share a row, a second call finds all.
  EXPECT_LT(table.rows.size(), model.graph.nodes.size());
  const auto before = plan::to_json(table);
  exec::profile_model(Queue(), model, declaration, table, [](int, int) {});
  EXPECT_EQ(plan::to_json(table), before);
  plan::ModelGraph graph = model.graph;
  EXPECT_TRUE(plan::apply_costs(table, graph));
}

}  // namespace
}  // namespace garonne::nn
