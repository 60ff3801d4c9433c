// A recorded graph holds neither values nor parameters, and finds them again wherever they are.
#include "nn/autograd_graph.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "base/error.hpp"

namespace garonne::nn {
namespace {

struct Example {
  const char* name;
  Differentiable function;
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> parameters;
  std::vector<bool> pinned_inputs;
  std::vector<bool> pinned_parameters;
  bool pinned_output;
  std::size_t private_slots;
};

using Tensors = std::vector<at::Tensor>;

std::vector<Example> examples() {
  at::manual_seed(31);
  std::vector<Example> all;
  all.push_back({"linear",
                 [](const Tensors& x, const Tensors& p) { return at::linear(x[0], p[0]); },
                 {at::randn({12, 8})},
                 {at::randn({5, 8})},
                 {true},
                 {true},
                 false,
                 0});
  all.push_back(
      {"linear of a view, its output saved",
       [](const Tensors& x, const Tensors& p) {
         return at::tanh(at::linear(x[0].narrow(0, 3, 6).transpose(0, 1), p[0].view({4, 6})));
       },
       {at::randn({12, 8})},
       {at::randn({24})},
       {true},
       {true},
       true,
       0});
  all.push_back({"sum, which saves nothing",
                 [](const Tensors& x, const Tensors&) { return x[0] + 2 * x[1]; },
                 {at::randn({7, 3}), at::randn({7, 3})},
                 {},
                 {},
                 {},
                 false,
                 0});
  all.push_back({"product of the inputs through something private",
                 [](const Tensors& x, const Tensors& p) { return at::exp(x[0] * p[0]) * x[1]; },
                 {at::randn({9}), at::randn({9})},
                 {at::randn({9})},
                 {true, true},
                 {true},
                 false,
                 1});
  all.push_back(
      {"softmax, seen through a reshape",
       [](const Tensors& x, const Tensors&) { return at::softmax(x[0], -1).reshape({-1}); },
       {at::randn({6, 4})},
       {},
       {},
       {},
       true,
       0});
  return all;
}

// What plain autograd says, with leaves.
std::vector<at::Tensor> plain_gradients(const Example& example, const at::Tensor& seed) {
  const at::AutoGradMode with_gradients(true);
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> leaves;
  for (const auto& x : example.inputs) inputs.push_back(x.clone().requires_grad_(true));
  for (const auto& p : example.parameters) parameters.push_back(p.clone().requires_grad_(true));
  leaves = inputs;
  leaves.insert(leaves.end(), parameters.begin(), parameters.end());
  return torch::autograd::grad({example.function(inputs, parameters)}, leaves, {seed});
}

bool flag(const std::vector<bool>& flags, std::size_t i) {
  return i < flags.size() && flags[i];
}

TEST(AutogradGraph, NamesWhatItReadsAndKeepsTheRest) {
  const at::NoGradGuard no_gradients;
  for (const auto& example : examples()) {
    SCOPED_TRACE(example.name);
    Record record;
    record_forward(example.function, example.inputs, example.parameters, record);
    const PinnedNames names = pinned_names(record);
    for (std::size_t i = 0; i < example.inputs.size(); ++i) {
      EXPECT_EQ(flag(names.inputs, i), flag(example.pinned_inputs, i)) << "input " << i;
    }
    for (std::size_t i = 0; i < example.parameters.size(); ++i) {
      EXPECT_EQ(flag(names.parameters, i), flag(example.pinned_parameters, i)) << "parameter " << i;
    }
    EXPECT_EQ(names.output, example.pinned_output);
    EXPECT_EQ(record.slots.size(), example.private_slots);
  }
}

TEST(AutogradGraph, HoldsNoValueAndNoParameter) {
  const at::NoGradGuard no_gradients;
  for (const auto& example : examples()) {
    SCOPED_TRACE(example.name);
    Record record;
    const at::Tensor output =
        record_forward(example.function, example.inputs, example.parameters, record);
    for (const auto& x : example.inputs) EXPECT_EQ(x.storage().use_count(), 1U);
    for (const auto& p : example.parameters) EXPECT_EQ(p.storage().use_count(), 1U);
    EXPECT_EQ(output.storage().use_count(), 1U);
    EXPECT_FALSE(output.requires_grad());
    for (const auto& slot : record.slots) EXPECT_EQ(slot.storage().use_count(), 1U);
  }
}

TEST(AutogradGraph, ValuesDroppedAndBackElsewhereGiveEqualBits) {
  const at::NoGradGuard no_gradients;
  for (auto& example : examples()) {
    SCOPED_TRACE(example.name);
    Record record;
    at::Tensor output =
        record_forward(example.function, example.inputs, example.parameters, record);
    at::manual_seed(77);
    const at::Tensor seed = at::randn_like(output);
    const auto wanted = plain_gradients(example, seed);
    BackwardArguments arguments;
    // Copies stand at other addresses; what was there is overwritten before it goes.
    const auto moved = [](at::Tensor& tensor) {
      const at::Tensor copy = tensor.clone();
      tensor.fill_(1e9);
      tensor = at::Tensor();
      return copy;
    };
    for (std::size_t i = 0; i < example.inputs.size(); ++i) {
      const at::Tensor copy = moved(example.inputs[i]);
      // What the names do not hold is not needed either.
      arguments.inputs.push_back(flag(example.pinned_inputs, i) ? copy : at::Tensor());
    }
    for (auto& p : example.parameters) arguments.parameters.push_back(moved(p));
    const at::Tensor output_copy = moved(output);
    if (example.pinned_output) arguments.output = output_copy;
    for (auto& slot : record.slots) slot = slot.clone();
    arguments.output_gradient = seed;
    arguments.record = &record;
    const auto got = backward_of_record(arguments);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], wanted[i])) << i;
    EXPECT_EQ(record.graph, nullptr) << "a graph is used up by its backward";
  }
}

TEST(AutogradGraph, TwoRecordsAtOnceDoNotMix) {
  const at::NoGradGuard no_gradients;
  const auto both = examples();
  const Example& example = both[3];
  Example other = example;
  at::manual_seed(5);
  for (auto& x : other.inputs) x = at::randn_like(x);
  Record first;
  Record second;
  const at::Tensor a = record_forward(example.function, example.inputs, example.parameters, first);
  const at::Tensor b = record_forward(other.function, other.inputs, other.parameters, second);
  const auto backward = [](const Example& of, Record& record, const at::Tensor& output) {
    BackwardArguments arguments;
    arguments.inputs = of.inputs;
    arguments.parameters = of.parameters;
    arguments.output = output;
    arguments.output_gradient = at::ones_like(output);
    arguments.record = &record;
    return backward_of_record(arguments);
  };
  const auto of_second = backward(other, second, b);
  const auto of_first = backward(example, first, a);
  const auto wanted_first = plain_gradients(example, at::ones_like(a));
  const auto wanted_second = plain_gradients(other, at::ones_like(b));
  for (std::size_t i = 0; i < of_first.size(); ++i) {
    EXPECT_TRUE(at::equal(of_first[i], wanted_first[i]));
    EXPECT_TRUE(at::equal(of_second[i], wanted_second[i]));
  }
}

// Plain autograd of the same process is not affected by the hooks.
TEST(AutogradGraph, OthersGraphsStayAsTheyWere) {
  {
    const at::NoGradGuard no_gradients;
    const auto all = examples();
    Record record;
    record_forward(all[0].function, all[0].inputs, all[0].parameters, record);
  }
  const at::AutoGradMode with_gradients(true);
  const at::Tensor x = at::ones({3}).requires_grad_(true);
  const auto gradient = torch::autograd::grad({(x * x).sum()}, {x});
  EXPECT_TRUE(at::equal(gradient[0], 2 * at::ones({3})));
}

TEST(AutogradGraph, AFunctionThatThrowsLeavesNoRecordingBehind) {
  const at::NoGradGuard no_gradients;
  Record record;
  EXPECT_THROW(
      record_forward([](const Tensors&, const Tensors&) -> at::Tensor { throw ConfigError("no"); },
                     {at::ones({2})}, {}, record),
      ConfigError);
  const at::AutoGradMode with_gradients(true);
  const at::Tensor x = at::ones({3}).requires_grad_(true);
  EXPECT_TRUE(at::equal(torch::autograd::grad({(x * x).sum()}, {x})[0], 2 * at::ones({3})));
}

}  // namespace
}  // namespace garonne::nn
