#include "exec/buffer_store.hpp"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "exec/device_tier.hpp"
#include "exec/gpt_rank.hpp"
#include "exec/model_state.hpp"
#include "exec/static_buffers.hpp"

namespace garonne::exec {
namespace {

using Names = std::vector<std::string>;

at::Tensor zeros(at::IntArrayRef shape, at::ScalarType type) {
  return at::zeros(shape, type);
}

BufferStore device_store() {
  return BufferStore({{Tier::Device, zeros}});
}

plan::Buffer lasting(const std::string& name, Tier tier = Tier::Device) {
  plan::Buffer buffer;
  buffer.name = name;
  buffer.tier = tier;
  buffer.live_at_start = buffer.live_at_end = true;
  return buffer;
}

// What `work` is refused with; empty where it is not.
template <typename Work>
std::string refusal(const Work& work) {
  try {
    work();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

void expect_says(const std::string& text, const Names& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
}

TEST(BufferStore, PartsAreViewsInTheirShape) {
  BufferStore store = device_store();
  store.make("shard", Tier::Device, {10}, at::kFloat);
  store.tensor("shard").copy_(at::arange(10, at::kFloat));
  const at::Tensor part = store.view({"shard", 3, {2, 3}});
  EXPECT_TRUE(at::equal(part, at::arange(3, 9, at::kFloat).view({2, 3})));
  part.fill_(-1);
  EXPECT_EQ(store.tensor("shard").sum().item<float>(), 0 + 1 + 2 - 6 + 9);
  EXPECT_EQ(store.view({"shard", 0, {10}}).data_ptr(), store.tensor("shard").data_ptr());
  EXPECT_EQ(store.view({"shard", 10, {0}}).numel(), 0);
}

TEST(BufferStore, WhatIsNotThereIsRefusedByName) {
  BufferStore store = device_store();
  store.make("shard", Tier::Device, {10}, at::kFloat);
  EXPECT_TRUE(store.has("shard"));
  EXPECT_FALSE(store.has("weight"));
  expect_says(refusal([&] { store.tensor("weight"); }), {"weight"});
  expect_says(refusal([&] { store.view({"weight", 0, {1}}); }), {"weight"});
  expect_says(refusal([&] { store.view({"shard", 5, {2, 3}}); }), {"shard", "6", "10"});
  expect_says(refusal([&] { store.view({"shard", -1, {2}}); }), {"shard"});
  expect_says(refusal([&] { store.make("shard", Tier::Device, {1}, at::kFloat); }), {"shard"});
  expect_says(refusal([&] { store.put("shard", Tier::Host, at::zeros({1})); }), {"shard"});
  EXPECT_EQ(store.tensor("shard").numel(), 10);
}

TEST(BufferStore, ALowerTierMakesItsBuffersAndWithoutItTheyAreRefused) {
  std::vector<std::vector<std::int64_t>> made;
  BufferStore store({{Tier::Device, zeros}, {Tier::Host, [&](at::IntArrayRef shape, auto type) {
                                               made.push_back(shape.vec());
                                               return zeros(shape, type);
                                             }}});
  store.make("weight", Tier::Device, {4}, at::kFloat);
  EXPECT_TRUE(made.empty());
  store.make("moment", Tier::Host, {2, 2}, at::kDouble);
  EXPECT_EQ(made, (std::vector<std::vector<std::int64_t>>{{2, 2}}));
  EXPECT_EQ(store.tensor("moment").scalar_type(), at::kDouble);
  expect_says(refusal([&] { store.make("spilled", Tier::Disk, {1}, at::kFloat); }),
              {"spilled", "disk"});
  EXPECT_FALSE(store.has("spilled"));
  std::map<std::string, Tier> tiers;
  for (const auto& [name, entry] : store.entries()) tiers[name] = entry.tier;
  EXPECT_EQ(tiers, (std::map<std::string, Tier>{{"weight", Tier::Device}, {"moment", Tier::Host}}));
}

TEST(StaticBuffers, ProgramsThatNumberThemOtherwiseReachTheSameStorage) {
  BufferStore store = device_store();
  for (const char* name : {"a", "b", "c"}) store.make(name, Tier::Device, {2}, at::kFloat);
  plan::Buffer passing;
  passing.name = "a";  // of a step only, and another one than that which lasts
  plan::Program training;
  training.buffers = {lasting("a"), lasting("b"), passing, lasting("c")};
  plan::Program evaluation;
  evaluation.buffers = {lasting("c"), passing, lasting("a")};
  const StaticBuffers one(store, training);
  const StaticBuffers other(store, evaluation);
  EXPECT_EQ(one.ids(), (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(other.ids(), (std::vector<int>{0, 2}));
  one.tensor(0).fill_(1);
  one.tensor(3).fill_(3);
  EXPECT_EQ(other.tensor(2).data_ptr(), one.tensor(0).data_ptr());
  EXPECT_EQ(other.tensor(0).data_ptr(), one.tensor(3).data_ptr());
  EXPECT_TRUE(at::equal(store.tensor("c"), at::full({2}, 3.0F)));
  EXPECT_NE(one.tensor(1).data_ptr(), one.tensor(0).data_ptr());
  for (const int id : {-1, 2, 4}) {
    EXPECT_NE(refusal([&] { static_cast<void>(one.tensor(id)); }), "") << id;
  }
}

TEST(StaticBuffers, WhatTheStoreLacksOrHasElsewhereIsRefused) {
  BufferStore store = device_store();
  store.make("weight", Tier::Device, {2}, at::kFloat);
  plan::Program program;
  program.buffers = {lasting("weight"), lasting("moment")};
  expect_says(refusal([&] { StaticBuffers(store, program); }), {"the state has no moment"});
  program.buffers = {lasting("weight", Tier::Host)};
  expect_says(refusal([&] { StaticBuffers(store, program); }), {"weight", "device", "host"});
}

// The optimizer's states of a real Program on the host: everything else is in the device's tier,
// and all of it has the numbers that it has there.
TEST(InitialState, EveryBufferIsInTheTierThatTheProgramNames) {
  for (const Precision precision : {Precision::Float32, Precision::BFloat16}) {
    Setting setting;
    setting.precision = precision;
    Rank rank(setting);
    plan::Program program = rank.program();
    std::int64_t on_device = 0;
    Names on_host;
    for (plan::Buffer& buffer : program.buffers) {
      if (!buffer.live_at_start) continue;
      if (buffer.kind == plan::BufferKind::OptimizerState) {
        buffer.tier = Tier::Host;
        on_host.push_back(buffer.name);
      } else {
        on_device += buffer.bytes;
      }
    }
    ASSERT_FALSE(on_host.empty());
    DeviceTier tier(std::int64_t{1} << 30);
    const DeviceScope scope(tier);
    expect_says(refusal([&] {
                  ModelState state = initial_state(Queue(), rank.model(), precision, 11, program);
                  make_buffers_below(state, rank.model(), program, 11, {});
                }),
                {on_host.front(), "host"});
    EXPECT_EQ(tier.live_bytes(), 0);
    std::size_t made = 0;
    const BufferStore::Maker on_the_host = [&](at::IntArrayRef shape, at::ScalarType type) {
      const HostScope host;
      ++made;
      return zeros(shape, type);
    };
    const ModelState state = initial_state(Queue(), rank.model(), precision, 11, program, nullptr,
                                           {{Tier::Host, on_the_host}});
    EXPECT_EQ(made, on_host.size());
    EXPECT_EQ(tier.live_bytes(), on_device);
    for (const std::string& name : on_host)
      EXPECT_EQ(state.buffers.entry(name).tier, Tier::Host) << name;
    ASSERT_EQ(state.pieces.size(), rank.state().pieces.size());
    for (std::size_t p = 0; p < state.pieces.size(); ++p) {
      const ParameterState here = state.parameter(p);
      const ParameterState whole = rank.state().parameter(p);
      EXPECT_TRUE(at::equal(here.parameter, whole.parameter)) << p;
      EXPECT_TRUE(at::equal(here.trained(), whole.trained())) << p;
      ASSERT_EQ(here.states.size(), whole.states.size());
      for (std::size_t k = 0; k < here.states.size(); ++k) {
        EXPECT_TRUE(at::equal(here.states[k], whole.states[k])) << p;
        EXPECT_EQ(here.states[k].data_ptr(),
                  state.buffers.tensor(state.pieces[p].states[k].buffer).data_ptr());
      }
    }
  }
}

}  // namespace
}  // namespace garonne::exec
