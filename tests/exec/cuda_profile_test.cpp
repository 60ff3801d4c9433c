// Profiles on a GPU's device over the made-up runtime: seconds of the device and, beside them, the
// host's to put the work there.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/seconds.hpp"
#include "exec/cuda_ranks.hpp"
#include "exec/profile/product_choice.hpp"
#include "exec/profile/profile.hpp"
#include "exec/profile/profile_bytes.hpp"
#include "exec/profile/timing.hpp"
#include "nn/fields/field_model.hpp"
#include "plan/model/step_costs.hpp"

namespace garonne::exec {
namespace {

// AdamW is measured with four tensors of two million elements.
constexpr std::int64_t room_bytes = std::int64_t{64} << 20;
constexpr std::int64_t memory_bytes = 3 * room_bytes;

TEST(CudaProfile, SecondsAndIssueSecondsAreChosenApart) {
  const std::vector<WorkSeconds> runs = {{5, 1}, {1, 5}, {2, 3}, {4, 2}, {3, 4}};
  std::size_t next = 0;
  int prepared = 0;
  int worked = 0;
  const Stopwatch scripted = [&](const std::function<void()>& work) {
    work();
    return runs[next++ % runs.size()];
  };
  const WorkSeconds shortest = shortest_seconds(
      0, [&] { ++worked; }, scripted);
  EXPECT_EQ(shortest.seconds, 1);
  EXPECT_EQ(shortest.issue_seconds, 1);
  next = 0;
  const WorkSeconds median = median_seconds(
      0, [&] { ++prepared; }, [&] { ++worked; }, scripted);
  EXPECT_EQ(median.seconds, 3);
  EXPECT_EQ(median.issue_seconds, 3);
  EXPECT_EQ(prepared, 6) << "once to warm up";
  EXPECT_EQ(worked, 12);
}

TEST(CudaProfile, IssueIsTheHostsTimeAndNoneWhereTheHostComputes) {
  constexpr std::chrono::milliseconds held(2);
  const auto hold = [&] { std::this_thread::sleep_for(held); };
  FakeGpu gpu(room_bytes, /*host_bytes=*/0, {.memory_bytes = memory_bytes}, {});
  const WorkSeconds on_device = stopwatch_of(gpu.device())(hold);
  EXPECT_GE(on_device.issue_seconds, 0.002);
  EXPECT_GE(on_device.seconds, 0);
  const WorkSeconds on_host = host_seconds(hold);
  EXPECT_GE(on_host.seconds, 0.002);
  EXPECT_EQ(on_host.issue_seconds, 0);
}

// A small kernel takes the device less than the host takes to put it there.
TEST(CudaProfile, WhatTheHostTakesToPutWorkThereIsNoTimeOfTheDevice) {
  constexpr std::chrono::milliseconds held(5);
  FakeGpu gpu(room_bytes, /*host_bytes=*/0, {.memory_bytes = memory_bytes}, {});
  const WorkSeconds taken = shortest_seconds(
      0, [&] { std::this_thread::sleep_for(held); }, stopwatch_of(gpu.device()));
  EXPECT_GE(taken.issue_seconds, 0.005);
  EXPECT_LT(taken.seconds, 0.002);
}

// Such work is measured, too, if not well.
TEST(CudaProfile, WorkThatWaitsForTheDeviceIsNotHeldForGood) {
  FakeGpu gpu(room_bytes, /*host_bytes=*/0, {.memory_bytes = memory_bytes}, {});
  device::Device& device = gpu.device();
  const WorkSeconds taken = stopwatch_of(device)([&] { device.wait(device.mark(Lane::Compute)); });
  EXPECT_GE(taken.seconds, 0);
  EXPECT_THROW(stopwatch_of(device)([] { throw std::runtime_error("of the work"); }),
               std::runtime_error);
  device.wait(device.mark(Lane::Compute));
  EXPECT_EQ(gpu.runtime().violations(), std::vector<std::string>());
}

TEST(CudaProfile, ClocksAreRaisedBeforeTheFirstRowAlone) {
  nn::Declaration declaration;
  declaration.threads = 2;
  declaration.granularity = cuda_allocation_granularity;
  const nn::Model model = small_text_model(declaration);
  FakeGpu gpu(2 * room_bytes, /*host_bytes=*/0, {.memory_bytes = 2 * memory_bytes}, {});
  const MeasuredGpu where{&gpu.device(), &gpu.tier(), &gpu.staging(), /*warm_up_seconds=*/0.5};
  plan::CostTable table;
  const auto start = std::chrono::steady_clock::now();
  double before_rows = 0;
  const auto progress = [&](int done, int) {
    if (done == 1) before_rows = seconds_since(start);
  };
  const auto profile = [&] {
    profile_model(gpu.device().queue(Lane::Compute), model, declaration, table, progress, &where);
  };
  profile();
  EXPECT_GE(before_rows, 0.5);
  const auto again = std::chrono::steady_clock::now();
  profile();
  EXPECT_LT(seconds_since(again), 0.5) << "nothing is left to measure";
  EXPECT_EQ(gpu.tier().live_bytes(), 0);
}

plan::CostTable measured(const nn::Model& model, const nn::Declaration& declaration, FakeGpu* gpu) {
  plan::CostTable table;
  const MeasuredGpu where =
      gpu == nullptr ? MeasuredGpu() : MeasuredGpu{&gpu->device(), &gpu->tier(), &gpu->staging()};
  const device::CpuDevice processor;
  const Queue queue =
      gpu == nullptr ? processor.queue(Lane::Compute) : gpu->device().queue(Lane::Compute);
  const MeasuredGpu* const on_gpu = gpu == nullptr ? nullptr : &where;
  profile_model(
      queue, model, declaration, table, [](int, int) {}, on_gpu);
  profile_step(queue, *optim::make_optimizer(RunConfig()), "adamw", declaration.precision, table,
               on_gpu);
  return table;
}

TEST(CudaProfile, EveryRowOfAGpuSaysWhatItTakesToIssue) {
  nn::Declaration declaration;
  declaration.threads = 2;
  declaration.granularity = cuda_allocation_granularity;
  nn::FieldShape shape;
  shape.input_channels = shape.target_channels = 1;
  shape.points = {8, 12};
  RunConfig::Model keys;
  keys.kind = "fno";
  keys.layers = 1;
  keys.hidden = 8;
  keys.modes = {4, 4};
  for (const nn::Model& model :
       {small_text_model(declaration),
        nn::make_field_model(keys, "relative-l2", shape, /*batch=*/2, declaration)}) {
    FakeGpu gpu(room_bytes, /*host_bytes=*/0, {.delay_seed = 3, .memory_bytes = memory_bytes}, {});
    const plan::CostTable table = measured(model, declaration, &gpu);
    EXPECT_GT(table.rows.size(), 3U);
    EXPECT_GT(table.product_roof, 0);
    const std::string norm = plan::step_cost_key("norm", precision_name(declaration.precision));
    const std::string update = plan::step_cost_key("adamw", precision_name(declaration.precision));
    for (const auto& [key, row] : table.rows) {
      SCOPED_TRACE(key);
      EXPECT_GT(row.forward_issue_seconds, 0);
      if (key == norm || key == update) continue;
      EXPECT_GT(row.forward_keep_issue_seconds, 0);
      EXPECT_GT(row.backward_issue_seconds, 0);
      EXPECT_EQ(row.backward_weight_issue_seconds > 0, row.backward_weight_seconds > 0);
    }
    // What plans go by, also after a file.
    const plan::CostTable read = plan::cost_table_from_json(plan::to_json(table), "a profile");
    plan::ModelGraph graph = model.graph;
    EXPECT_TRUE(plan::apply_costs(read, graph));
    for (const plan::NodeSpec& node : graph.nodes) {
      EXPECT_EQ(node.forward.issue_seconds, table.rows.at(node.cost_key).forward_issue_seconds);
      EXPECT_EQ(node.backward.issue_seconds, table.rows.at(node.cost_key).backward_issue_seconds);
    }
    EXPECT_EQ(gpu.tier().live_bytes(), 0) << "nothing stays behind";
    EXPECT_EQ(gpu.runtime().violations(), std::vector<std::string>());
  }
}

// The libraries are those of the queue, whose kernels are the host's here.
TEST(CudaProfile, EveryProductOfAGpuIsMeasuredOnceAndRecorded) {
  nn::Declaration declaration;
  declaration.threads = 2;
  declaration.granularity = cuda_allocation_granularity;
  const nn::Model model = small_text_model(declaration);
  FakeGpu gpu(room_bytes, /*host_bytes=*/0, {.memory_bytes = memory_bytes}, {});
  plan::CostTable table = measured(model, declaration, &gpu);
  const std::vector<std::string> keys = product_keys(model, declaration.precision);
  EXPECT_EQ(keys.size(), 15U) << "of four linear layers and the head, three each";
  EXPECT_EQ(table.products.size(), keys.size());
  const DeviceKind kind = gpu.device().queue(Lane::Compute).device;
  for (const std::string& key : keys) {
    ASSERT_TRUE(table.products.contains(key)) << key;
    const auto* library = nn::find_product_library(table.products.at(key).get<std::string>());
    ASSERT_NE(library, nullptr) << key;
    EXPECT_TRUE(library->works_on(kind)) << key;
  }
  // What was chosen stays, whatever would be the fastest now.
  const std::string kept = keys.front();
  table.products[kept] = "oneDNN";
  const plan::CostTable before = table;
  const MeasuredGpu where{&gpu.device(), &gpu.tier(), &gpu.staging()};
  profile_model(
      gpu.device().queue(Lane::Compute), model, declaration, table, [](int, int) { ADD_FAILURE(); },
      &where);
  EXPECT_EQ(plan::to_json(table), plan::to_json(before));
}

// The bias of a layer is added within the product, or takes time of its own.
TEST(CudaProfile, ForwardProductsAreMeasuredWithTheBiasOfTheirNode) {
  const nn::Model model = small_text_model(nn::Declaration());
  int with_bias = 0;
  for (const nn::ProductShape& shape : product_shapes(model, Precision::Float32)) {
    const bool head = shape.outputs == text_vocabulary;
    const bool forward = shape.form == nn::ProductForm::Forward;
    EXPECT_EQ(shape.bias, forward && !head) << nn::product_key(shape);
    with_bias += shape.bias ? 1 : 0;
  }
  EXPECT_EQ(with_bias, 4);
}

// Else a run that starts on a GPU takes what others need.
TEST(CudaProfile, NodesAreMeasuredInTheBytesThatTheyDeclare) {
  nn::Declaration declaration;
  declaration.threads = 2;
  declaration.granularity = cuda_allocation_granularity;
  nn::FieldShape shape;
  shape.input_channels = shape.target_channels = 1;
  shape.points = {24, 32};
  RunConfig::Model keys;
  keys.kind = "fno";
  keys.layers = 1;
  keys.hidden = 16;
  keys.modes = {4, 4};
  for (const Precision precision : {Precision::Float32, Precision::BFloat16, Precision::Float64}) {
    declaration.precision = precision;
    std::vector<nn::Model> models;
    models.push_back(small_text_model(declaration));
    if (precision != Precision::BFloat16)
      models.push_back(nn::make_field_model(keys, "relative-l2", shape, /*batch=*/4, declaration));
    for (const nn::Model& model : models) {
      SCOPED_TRACE(std::string(precision_name(precision)) + " " + model.graph.nodes[1].kind);
      const std::int64_t bytes = node_profile_bytes(model, declaration);
      const auto profile = [&](std::int64_t room) {
        FakeGpu gpu(room, /*host_bytes=*/0, {.memory_bytes = memory_bytes}, {});
        const MeasuredGpu where{&gpu.device(), &gpu.tier(), &gpu.staging()};
        plan::CostTable table;
        profile_model(
            gpu.device().queue(Lane::Compute), model, declaration, table, [](int, int) {}, &where);
        return table.rows.size();
      };
      EXPECT_GT(profile(bytes), 3U);
      EXPECT_THROW(profile(bytes / 2), Error) << "twice what it takes";
      EXPECT_GE(profile_bytes(model, declaration, *optim::make_optimizer(RunConfig())),
                bytes + bytes / 2);
    }
  }
}

// Runs another node and sees the tokens that it is given.
class Watched final : public nn::Node {
 public:
  Watched(std::shared_ptr<const nn::Node> node, std::map<std::int64_t, int>& seen)
      : node_(std::move(node)), seen_(seen) {}
  plan::NodeSpec declare(const nn::Declaration& declaration) const override {
    return node_->declare(declaration);
  }
  std::vector<nn::ConstantTable> tables(Precision precision) const override {
    return node_->tables(precision);
  }
  at::Tensor forward(const nn::Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>& parameters, nn::Record* record) const override {
    for (const at::Tensor& input : inputs) {
      if (input.scalar_type() != at::kLong) continue;
      seen_.clear();
      for (std::int64_t i = 0; i < input.numel(); ++i)
        ++seen_[input.const_data_ptr<std::int64_t>()[i]];
    }
    return node_->forward(context, inputs, parameters, record);
  }
  std::vector<at::Tensor> backward(const nn::Context& context,
                                   nn::BackwardArguments& arguments) const override {
    return node_->backward(context, arguments);
  }

 private:
  std::shared_ptr<const nn::Node> node_;
  std::map<std::int64_t, int>& seen_;
};

// A kernel that adds up the rows of a token has as much to do with each.
TEST(CudaProfile, TokensAreOfTheWholeVocabularyInTurn) {
  nn::Declaration declaration;
  declaration.threads = 2;
  declaration.granularity = cuda_allocation_granularity;
  for (const bool on_gpu : {false, true}) {
    nn::Model model = small_text_model(declaration);
    std::map<std::string, std::map<std::int64_t, int>> seen;
    for (std::size_t n = 0; n < model.nodes.size(); ++n) {
      const std::string& kind = model.graph.nodes[n].kind;
      if (kind == "embedding" || kind == "loss_head")
        model.nodes[n] = std::make_shared<Watched>(model.nodes[n], seen[kind]);
    }
    ASSERT_EQ(seen.size(), 2U);
    FakeGpu gpu(room_bytes, /*host_bytes=*/0, {.memory_bytes = memory_bytes}, {});
    static_cast<void>(measured(model, declaration, on_gpu ? &gpu : nullptr));
    const std::int64_t rows = text_batch * text_sequence;
    for (const auto& [kind, tokens] : seen) {
      SCOPED_TRACE(kind);
      EXPECT_EQ(static_cast<std::int64_t>(tokens.size()), std::min(rows, text_vocabulary));
      EXPECT_EQ(tokens.begin()->first, 0);
      EXPECT_LT(tokens.rbegin()->first, text_vocabulary);
      for (const auto& [token, count] : tokens)
        EXPECT_LE(count, (rows + text_vocabulary - 1) / text_vocabulary) << token;
    }
  }
}

// Plans go by measured bytes, and a step that a graph records takes more in float32.
TEST(CudaProfile, BytesOfAttentionAreThoseOfARecordedStep) {
  for (const Precision precision : {Precision::Float32, Precision::Float64}) {
    nn::Declaration declaration;
    declaration.precision = precision;
    declaration.threads = 2;
    declaration.granularity = cuda_allocation_granularity;
    const nn::Model model = small_text_model(declaration);
    // Float64 has all scores at once.
    FakeGpu gpu(2 * room_bytes, /*host_bytes=*/0, {.memory_bytes = 2 * memory_bytes}, {});
    const plan::CostTable table = measured(model, declaration, &gpu);
    int found = 0;
    for (const plan::NodeSpec& node : model.graph.nodes) {
      if (node.kind != "attention" && node.kind != "dropout_add") continue;
      const bool attends = node.kind == "attention";
      found += attends ? 1 : 0;
      const std::int64_t more = attends && precision == Precision::Float32 ? 2 * 512 : 0;
      const plan::CostRow& row = table.rows.at(node.cost_key);
      // What the host's kernels take is exact.
      EXPECT_EQ(row.forward_transient_bytes, node.forward.transient_bytes + more);
      EXPECT_EQ(row.forward_keep_transient_bytes, node.forward_keep.transient_bytes + more);
      EXPECT_EQ(row.backward_transient_bytes, node.backward.transient_bytes);
    }
    EXPECT_GT(found, 0);
  }
}

TEST(CudaProfile, RowsOfAProcessorHaveNoIssue) {
  nn::Declaration declaration;
  declaration.threads = 2;
  const plan::CostTable table = measured(small_text_model(declaration), declaration, nullptr);
  for (const auto& [key, row] : table.rows) {
    EXPECT_EQ(row.forward_issue_seconds, 0) << key;
    EXPECT_EQ(row.backward_issue_seconds, 0) << key;
  }
}

}  // namespace
}  // namespace garonne::exec
