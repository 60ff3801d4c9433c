// The backward of attention is the one that autograd would call, on inputs that have moved.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "nn/layers/layers.hpp"
#include "nn/layers/tiled_attention.hpp"
#include "plan/model/attention_core.hpp"

namespace garonne::nn {
namespace {

TEST(Attention, GivesAutogradsBitsFromWhatItKept) {
  const Rows rows{2, 70};
  const std::int64_t heads = 3;
  const std::int64_t head = 8;
  const auto node = make_attention(rows, heads, head);
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    // tiled_attention_test.cpp looks at those.
    if (type == at::kBFloat16 && attends_in_tiles(Precision::BFloat16, DeviceKind::Cpu)) continue;
    at::manual_seed(9);
    at::Tensor qkv = at::randn({rows.count(), 3 * heads * head}).to(type);
    const at::Tensor seed = at::randn({rows.count(), heads * head}).to(type);
    at::Tensor wanted;
    {
      const at::AutoGradMode with_gradients(true);
      const at::Tensor leaf = qkv.clone().requires_grad_(true);
      const auto parts = leaf.view({rows.batch, rows.sequence, 3, heads, head}).unbind(2);
      const at::Tensor out = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
                                             parts[0].transpose(1, 2), parts[1].transpose(1, 2),
                                             parts[2].transpose(1, 2), 0.0, true))
                                 .transpose(1, 2)
                                 .reshape({rows.count(), heads * head});
      wanted = torch::autograd::grad({out}, {leaf}, {seed})[0];
    }
    const at::NoGradGuard no_gradients;
    Context context;
    context.precision = type == at::kFloat    ? Precision::Float32
                        : type == at::kDouble ? Precision::Float64
                                              : Precision::BFloat16;
    Record record;
    const at::Tensor output = node->forward(context, {qkv}, {}, &record);
    EXPECT_TRUE(at::equal(output, node->forward(context, {qkv}, {}, nullptr)));
    EXPECT_EQ(qkv.storage().use_count(), 1U);
    EXPECT_EQ(output.storage().use_count(), 1U);
    ASSERT_EQ(record.slots.size(), 1U);
    EXPECT_EQ(record.slots[0].numel(), rows.count() * heads);
    BackwardArguments arguments;
    arguments.inputs = {qkv.clone()};
    arguments.output = output.clone();
    arguments.output_gradient = seed;
    arguments.wanted = {true};
    arguments.add_to.resize(1);
    arguments.record = &record;
    qkv.fill_(1e9);
    EXPECT_TRUE(at::equal(node->backward(context, arguments)[0], wanted));
  }
}

// Of every form, whatever the precision; what is beside it is not.
TEST(Attention, IsTheCoreThatSelectiveRecomputationRunsAgain) {
  const Rows rows{2, 70};
  const auto core = [&](const std::unique_ptr<Node>& node, Precision precision) {
    Declaration declaration;
    declaration.precision = precision;
    return plan::is_attention_core(node->declare(declaration));
  };
  for (const auto precision : {Precision::Float32, Precision::Float64, Precision::BFloat16}) {
    EXPECT_TRUE(core(make_attention(rows, 3, 8), precision));
    EXPECT_TRUE(core(make_attention(rows, 3, 8, {0.1, "attention", 0}), precision));
    EXPECT_TRUE(core(make_grouped_attention(rows, 3, 2, 8), precision));
    EXPECT_FALSE(core(make_linear(rows, 24, 24), precision));
    EXPECT_FALSE(core(make_rotary(rows, 70, {3, 3, 2, 8}, 1e4), precision));
  }
}

}  // namespace
}  // namespace garonne::nn
