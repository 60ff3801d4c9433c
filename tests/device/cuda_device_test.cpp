// What is special about the GPU's device: streams and threads that follow each other, its memory,
// errors that come late, and its end.
#include "device/cuda_device.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "device/lane_error.hpp"
#include "device/numa_policy.hpp"
#include "fake_cuda_runtime.hpp"
#include "message_of.hpp"

namespace garonne::device {
namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

// Every test ends with a runtime that has nothing to complain about and nothing left.
class CudaDevices : public testing::Test {
 protected:
  CudaDevice& make(CudaSettings settings = {}, const FakeCudaSettings& fake = {}) {
    if (settings.longest_wait_seconds > 60) settings.longest_wait_seconds = 60;
    runtime_ = std::make_unique<FakeCudaRuntime>(fake);
    device_ = std::make_unique<CudaDevice>(*runtime_, settings);
    return *device_;
  }

  // A kernel that sets all floats of a block.
  void set(Span block, float value) {
    std::byte* const side = runtime_->device_side(block.data);
    runtime_->launch(device_->queue(Lane::Compute).native,
                     [=] { std::fill_n(reinterpret_cast<float*>(side), block.bytes / 4, value); });
  }

  void TearDown() override {
    device_.reset();
    if (!runtime_) return;
    EXPECT_EQ(runtime_->violations(), std::vector<std::string>());
    EXPECT_EQ(runtime_->live(), FakeCudaCounts());
  }

  std::unique_ptr<FakeCudaRuntime> runtime_;
  std::unique_ptr<CudaDevice> device_;
};

TEST_F(CudaDevices, ComputeHasTheHigherPriority) {
  CudaDevice& device = make();
  EXPECT_EQ(device.kind(), DeviceKind::Cuda);
  EXPECT_EQ(runtime_->stream_priorities(), (std::vector<int>{-5, 0, 0}));
  EXPECT_NE(device.queue(Lane::Compute).native, nullptr);
  EXPECT_EQ(device.queue(Lane::DiskRead).device, DeviceKind::Cpu) << "the host computes there";
  EXPECT_EQ(device.queue(Lane::Collective).native, nullptr);
  EXPECT_THROW(device.queue(Lane::CopyIn), InternalError);
}

// Where the system lets a thread say from where its memory comes; else that is told.
TEST_F(CudaDevices, PinnedMemoryIsMadeOnTheDevicesNode) {
  CudaDevice& device = make({.numa_node = 0});
  device.reserve(Tier::Host, mebibyte);
  device.reserve(Tier::Device, mebibyte);
  const std::optional<int> node = runtime_->pinned_nodes().back();
  if (device.numa_refusal().empty()) {
    EXPECT_EQ(node, 0);
  } else {
    EXPECT_EQ(node, std::nullopt) << device.numa_refusal();
  }
  EXPECT_EQ(NumaPolicy::preferred(), std::nullopt) << "the thread's policy is what it was";
}

TEST_F(CudaDevices, ANodeThatIsNotThereIsToldAndPinnedMemoryIsMade) {
  CudaDevice& device = make({.numa_node = 1000});
  device.reserve(Tier::Host, mebibyte);
  EXPECT_NE(device.numa_refusal(), "");
  EXPECT_EQ(runtime_->pinned_nodes().back(), std::nullopt);
}

TEST_F(CudaDevices, ATierIsReservedAnewWhenItWasGivenBack) {
  CudaDevice& device = make();
  TierMemory& first = device.reserve(Tier::Device, mebibyte);
  const Span block = first.allocate(4096, "a block");
  EXPECT_THROW(device.release(Tier::Device), InternalError) << "somebody uses it";
  first.release(block);
  device.release(Tier::Device);
  EXPECT_EQ(runtime_->live().device_blocks, 0);
  EXPECT_THROW(device.reserved(Tier::Device), InternalError);
  EXPECT_EQ(device.reserve(Tier::Device, 2 * mebibyte).limit_bytes(), 2 * mebibyte);
}

TEST_F(CudaDevices, BlocksCanBeGivenBackWhenTheDeviceIsOver) {
  CudaDevice& device = make();
  device.reserve(Tier::Device, mebibyte);
  const std::shared_ptr<TierMemory> memory = device.reserved(Tier::Device);
  const Span block = memory->allocate(4096, "a tensor that somebody returned");
  device_.reset();
  EXPECT_EQ(memory->live_bytes(), 4096);
  memory->release(block);
  EXPECT_EQ(memory->live_bytes(), 0);
}

TEST_F(CudaDevices, LanesOfCommunicationAreStreamsWhereTheyAreAskedFor) {
  CudaDevice& device = make({.communication_streams = true});
  EXPECT_EQ(runtime_->stream_priorities(), (std::vector<int>{-5, 0, 0, 0, 0}));
  const Queue queue = device.queue(Lane::Collective);
  EXPECT_EQ(queue.device, DeviceKind::Cuda);
  std::atomic<bool> ran = false;
  runtime_->launch(queue.native, [&ran] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ran = true;
  });
  device.wait(device.mark(Lane::Collective));
  EXPECT_TRUE(ran) << "a mark counts kernels that the device was not told of";
}

TEST_F(CudaDevices, AMarkIsOfItsMomentAndOfNothingLater) {
  CudaDevice& device = make();
  std::promise<void> gate;
  runtime_->launch(device.queue(Lane::Compute).native, [] {});
  const Mark before = device.mark(Lane::Compute);
  runtime_->launch(device.queue(Lane::Compute).native,
                   [open = gate.get_future().share()] { open.wait(); });
  device.wait(before);
  const Mark after = device.mark(Lane::Compute);
  EXPECT_FALSE(device.done(after));
  gate.set_value();
  device.wait(after);
}

TEST_F(CudaDevices, HasMemoryThatTheHostCannotTouch) {
  CudaDevice& device = make({.spoil_blocks = true});
  const std::int64_t free = device.memory().free_bytes;
  TierMemory& memory = device.reserve(Tier::Device, mebibyte);
  TierMemory& host = device.reserve(Tier::Host, mebibyte);
  EXPECT_EQ(device.memory().free_bytes, free - mebibyte - mebibyte / 16);
  const Span block = memory.allocate(400, "block");
  EXPECT_EQ(memory.live_bytes(), 512) << "counted in multiples of 512";
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  EXPECT_EQ(write(ends[1], block.data, 4), -1);
  EXPECT_EQ(errno, EFAULT);
  close(ends[0]);
  close(ends[1]);
  const Span copy = host.allocate(400, "copy");
  const auto* values = reinterpret_cast<const float*>(copy.data);
  device.wait(device.copy(Lane::CopyOut, copy, block, "look"));
  EXPECT_TRUE(std::all_of(values, values + 100, [](float value) { return std::isnan(value); }));
  set(block, 2);
  memory.release(block);
  device.wait(device.copy(Lane::CopyOut, copy, {Tier::Device, block.data, 400}, "look again"));
  EXPECT_TRUE(std::all_of(values, values + 100, [](float value) { return std::isnan(value); }))
      << "what was freed is spoiled after its last use";
  EXPECT_THROW(device.reserve(Tier::Device, mebibyte), InternalError);
  EXPECT_THROW(device.reserve(Tier::Disk, mebibyte), InternalError);
}

TEST_F(CudaDevices, RefusesWhatIsOverTheBudgetAndAskedTheRuntimeOnce) {
  CudaDevice& device = make();
  TierMemory& memory = device.reserve(Tier::Device, 4096);
  std::vector<Span> blocks;
  for (int block = 0; block < 8; ++block) blocks.push_back(memory.allocate(500, "block"));
  EXPECT_TRUE(contains(message_of([&] { memory.allocate(1, "forward layer 3"); }),
                       "forward layer 3: 512 bytes more than the 4096 live ones"));
  for (const Span& block : blocks) memory.release(block);
  EXPECT_EQ(runtime_->calls().at("cudaMalloc"), 1);
  EXPECT_EQ(device.reach_bytes(Tier::Device), 4096);
}

TEST_F(CudaDevices, MemoryThatTheRuntimeDoesNotHaveIsRefusedByName) {
  CudaDevice& device = make({}, {.memory_bytes = mebibyte});
  EXPECT_EQ(message_of([&] { device.reserve(Tier::Device, mebibyte); }),
            "compute lane, 1.06 MiB for the device tier: cudaMalloc: cudaError2: made up");
}

TEST_F(CudaDevices, CopiesOnlyPinnedMemory) {
  CudaDevice& device = make();
  TierMemory& memory = device.reserve(Tier::Device, mebibyte);
  TierMemory& host = device.reserve(Tier::Host, 8192);
  std::vector<std::byte> pageable(400);
  const Span block = memory.allocate(400, "block");
  const Span outside{Tier::Host, pageable.data(), 400};
  EXPECT_THROW(device.copy(Lane::CopyIn, block, outside, "in"), InternalError);
  EXPECT_THROW(device.copy(Lane::CopyOut, outside, block, "out"), InternalError);
  Span beyond = host.allocate(8192, "all of it");
  beyond.data += 8192 + 8192 / 16 + 4096;
  beyond.bytes = 400;
  EXPECT_THROW(device.copy(Lane::CopyOut, beyond, block, "out"), InternalError);
  EXPECT_FALSE(runtime_->calls().contains("cudaMemcpyAsync"));
}

// CopyIn follows a read of a file, which follows a copy out: a stream, a thread, a stream.
TEST_F(CudaDevices, AStreamFollowsAThreadAndTheHostIsNotHeld) {
  for (const bool by_itself : {true, false}) {
    TearDown();
    CudaDevice& device = make({}, {.delay_seed = 7, .wait_values = by_itself});
    EXPECT_EQ(device.streams_follow_threads(), by_itself);
    TierMemory& memory = device.reserve(Tier::Device, mebibyte);
    TierMemory& host = device.reserve(Tier::Host, mebibyte);
    const Span block = memory.allocate(400, "block");
    const Span other = memory.allocate(400, "other");
    const Span staged = host.allocate(400, "staged");
    auto* const values = reinterpret_cast<float*>(staged.data);
    std::promise<void> gate;
    std::future<void> open = gate.get_future();
    if (!by_itself) gate.set_value();  // the host is held until the thread is done
    set(block, 3);
    const std::array out = {device.copy(Lane::CopyOut, staged, block, "out")};
    const std::array read = {device.run(
        Lane::DiskRead,
        [&] {
          open.wait();
          for (int i = 0; i < 100; ++i) values[i] += 1;
        },
        "read", out)};
    const Mark in = device.copy(Lane::CopyIn, other, staged, "in", read);
    EXPECT_EQ(device.done(read[0]), !by_itself);
    if (by_itself) gate.set_value();
    device.order(Lane::Compute, in);
    float seen = 0;
    const std::byte* const side = runtime_->device_side(other.data);
    runtime_->launch(device.queue(Lane::Compute).native,
                     [&seen, side] { seen = *reinterpret_cast<const float*>(side); });
    device.wait(device.launched(Lane::Compute, "look"));
    EXPECT_EQ(seen, 4);
  }
}

// The host is held no longer than its limit where it stands in for a stream.
TEST_F(CudaDevices, AThreadThatIsStuckDoesNotHoldTheHostForEver) {
  std::promise<void> gate;
  CudaDevice& device = make({.longest_wait_seconds = 0.05}, {.wait_values = false});
  const std::array stuck = {device.run(
      Lane::DiskRead, [open = gate.get_future().share()] { open.wait(); }, "states of layer 2")};
  const std::string text = message_of([&] { device.order(Lane::CopyIn, stuck[0]); });
  EXPECT_EQ(text, "disk-read lane, states of layer 2: not done after a wait of 0.05 s");
  gate.set_value();
}

TEST_F(CudaDevices, AKernelThatFailsIsToldLateAndByItsNameWhereTheHostWaits) {
  for (const bool synchronous : {false, true}) {
    TearDown();
    CudaDevice& device = make({.synchronous = synchronous});
    bool ran = false;
    std::promise<void> gate;
    const std::string text = message_of([&] {
      // Until everything is put, where nobody waits in between.
      if (!synchronous) {
        runtime_->launch(device.queue(Lane::Compute).native,
                         [open = gate.get_future().share()] { open.wait(); });
      }
      for (const char* name : {"forward layer 1", "forward layer 2", "forward layer 3"}) {
        if (synchronous) device.timed_mark(Lane::Compute);
        if (std::string(name) == "forward layer 2") runtime_->fail_next_kernel();
        runtime_->launch(device.queue(Lane::Compute).native,
                         [] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
        device.launched(Lane::Compute, name);
      }
      const Mark last = device.mark(Lane::Compute);
      gate.set_value();
      device.wait(last);
    });
    EXPECT_TRUE(contains(
        text, synchronous ? "compute lane, forward layer 2" : "compute lane, forward layer "))
        << text;
    // Where somebody waits after each kernel, whichever call comes first has the news.
    EXPECT_TRUE(contains(
        text, synchronous ? ": cudaError719: made up" : "cudaEventQuery: cudaError719: made up"))
        << text;
    EXPECT_TRUE(contains(text, "forward layer 2") || !synchronous) << text;
    EXPECT_EQ(contains(text, "GARONNE_SYNCHRONOUS=1 says which"), !synchronous) << text;
    EXPECT_THROW(device.done(device.run(
                     Lane::HostCompute, [&ran] { ran = true; }, "of no use")),
                 LaneError);
    EXPECT_THROW(device.order(Lane::Compute, {}), LaneError);
    EXPECT_EQ(message_of([&] { device.wait(device.mark(Lane::HostCompute)); }), text)
        << "all waits tell the first failure";
    EXPECT_TRUE(contains(message_of([&] { device.close(); }), "cudaError719"));
    EXPECT_FALSE(ran);
  }
}

// After a failure the driver calls nothing; what it was given must not stay for ever.
TEST_F(CudaDevices, WhatIsNeverCalledIsDroppedAtTheEnd) {
  CudaDevice& device = make();
  auto captured = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = captured;
  // Until everything is put, since what comes after a failure is refused at once.
  std::promise<void> gate;
  runtime_->launch(device.queue(Lane::Compute).native,
                   [open = gate.get_future().share()] { open.wait(); });
  runtime_->fail_next_kernel();
  runtime_->launch(device.queue(Lane::Compute).native, [] {});
  device.run(
      Lane::Compute, [captured] {}, "is not called");
  gate.set_value();
  captured.reset();
  EXPECT_THROW(device.wait(device.mark(Lane::Compute)), LaneError);
  device_.reset();
  EXPECT_TRUE(watched.expired());
}

TEST_F(CudaDevices, ALaunchThatTheRuntimeRefusesIsToldAtOnce) {
  CudaDevice& device = make();
  runtime_->fail("cudaGetLastError", 0);
  EXPECT_EQ(message_of([&] { device.launched(Lane::Compute, "backward layer 9"); }),
            "compute lane, backward layer 9: cudaGetLastError: cudaError999: made up");
  EXPECT_THROW(device.launched(Lane::CopyIn, "kernels"), InternalError);
}

TEST_F(CudaDevices, AWaitForAStreamEndsAndSaysWhatTheStreamIsAt) {
  CudaDevice& device = make({.longest_wait_seconds = 0.05});
  std::promise<void> gate;
  const auto put = [&](const char* name, std::function<void()> kernel) {
    runtime_->launch(device.queue(Lane::Compute).native, std::move(kernel));
    return device.launched(Lane::Compute, name);
  };
  put("forward layer 1", [] {});
  put("forward layer 2", [open = gate.get_future().share()] { open.wait(); });
  const Mark last = put("forward layer 3", [] {});
  EXPECT_EQ(message_of([&] { device.wait(last); }),
            "compute lane, forward layer 2: not done after a wait of 0.05 s");
  gate.set_value();
}

// A kernel that never ends, as one of a transport whose peer is gone, does not keep the process.
TEST_F(CudaDevices, TheEndDoesNotWaitForEver) {
  std::promise<void> gate;
  CudaDevice& device = make({.longest_end_seconds = 0.05});
  runtime_->launch(device.queue(Lane::Compute).native,
                   [open = gate.get_future().share()] { open.wait(); });
  device.launched(Lane::Compute, "sum over ranks");
  EXPECT_EQ(message_of([&] { device.close(); }),
            "compute lane, end of the device: sum over ranks: not done after a wait of 0.05 s; "
            "streams, events and memory are left as they are");
  device_.reset();
  EXPECT_EQ(runtime_->live().streams, 3) << "nothing is taken from under a kernel";
  gate.set_value();
  runtime_.reset();
}

// A stream waits for what a thread was to do and, after a failure, never does.
TEST_F(CudaDevices, AStreamThatFollowsDroppedWorkComesToItsEnd) {
  std::promise<void> gate;
  CudaDevice& device = make({.longest_end_seconds = 10});
  TierMemory& memory = device.reserve(Tier::Device, mebibyte);
  TierMemory& host = device.reserve(Tier::Host, mebibyte);
  device.run(
      Lane::DiskRead,
      [open = gate.get_future().share()] {
        open.wait();
        throw IoError("/scratch/states", "the disk is gone");
      },
      "states of layer 3");
  const std::array dropped = {device.run(
      Lane::DiskRead, [] {}, "states of layer 4")};
  const Mark in = device.copy(Lane::CopyIn, memory.allocate(400, "block"),
                              host.allocate(400, "staged"), "in", dropped);
  gate.set_value();
  EXPECT_EQ(message_of([&] { device.wait(in); }),
            "disk-read lane, states of layer 3: /scratch/states: the disk is gone");
  EXPECT_EQ(message_of([&] { device.close(); }), "nothing was thrown");
}

TEST_F(CudaDevices, CloseSaysWhatCouldNotBeGivenBack) {
  CudaDevice& device = make();
  device.reserve(Tier::Device, mebibyte);
  runtime_->fail("cudaFree", 0);
  EXPECT_EQ(message_of([&] { device.close(); }),
            "compute lane, end of the device: cudaFree: cudaError999: made up");
}

TEST_F(CudaDevices, AStartThatFailsLeavesNothing) {
  FakeCudaRuntime sound;
  { const CudaDevice device(sound, {}); }
  const std::set<std::string> ends = {"cudaStreamQuery", "cudaStreamDestroy", "cudaEventDestroy",
                                      "cudaFreeHost"};
  for (const auto& [call, count] : sound.calls()) {
    for (int number = 0; number < count; ++number) {
      FakeCudaRuntime runtime;
      runtime.fail(call, number);
      const std::string text = message_of([&] { const CudaDevice device(runtime, {}); });
      // Destructors say nothing, and the number of polls is a matter of timing.
      const bool silent = ends.contains(call) || (call == "cudaEventQuery" && number > 0);
      EXPECT_TRUE(contains(text, call + ": cudaError999") || silent) << call << ": " << text;
      EXPECT_EQ(runtime.live(), FakeCudaCounts()) << call << " " << number;
      EXPECT_EQ(runtime.violations(), std::vector<std::string>()) << call << " " << number;
    }
  }
}

TEST_F(CudaDevices, ClocksOfStreamsAndThreadsAreNotMixed) {
  CudaDevice& device = make();
  const Mark stream = device.timed_mark(Lane::CopyIn);
  const Mark other = device.timed_mark(Lane::Compute);
  const Mark thread = device.timed_mark(Lane::DiskRead);
  device.wait(stream);
  device.wait(other);
  device.wait(thread);
  EXPECT_GT(std::abs(device.seconds(stream, other)) + 1, 0) << "two streams have one clock";
  EXPECT_THROW(device.seconds(stream, thread), InternalError);
}

// The host runs ahead by thousands of pieces of work; events are made for what is under way only.
TEST_F(CudaDevices, EventsAreUsedAgain) {
  CudaDevice& device = make();
  for (int turn = 0; turn < 3000; ++turn) {
    device.launched(Lane::Compute, "an instruction");
    if (turn % 100 == 99) device.wait(device.mark(Lane::Compute));
  }
  EXPECT_LE(runtime_->live().events, 110);
}

TEST(Synchronous, IsAskedForByOneAndByNothingElse) {
  EXPECT_FALSE(asked_for_synchronous(nullptr));
  EXPECT_FALSE(asked_for_synchronous(""));
  EXPECT_FALSE(asked_for_synchronous("0"));
  EXPECT_TRUE(asked_for_synchronous("1"));
  for (const char* value : {"yes", "2", "true", " 1"}) {
    EXPECT_THROW(asked_for_synchronous(value), ConfigError) << value;
  }
}

TEST(CudaRuntime, OtherBuildsRefuseItByName) {
#ifdef GARONNE_WITH_CUDA
  EXPECT_NE(make_cuda_runtime(), nullptr);
#else
  EXPECT_THROW(make_cuda_runtime(), NotBuiltError);
#endif
}

// A block at an exact place has no holes: a sixteenth more is for the others alone.
TEST(CudaDevice, PinsASixteenthMoreThanWhatIsNoSingleBlock) {
  FakeCudaRuntime runtime;
  CudaDevice device(runtime, {.longest_wait_seconds = 20});
  constexpr std::int64_t exact = 64 * mebibyte;
  const std::int64_t before = runtime.pinned_bytes();
  TierMemory& host = device.reserve(Tier::Host, 16 * mebibyte, exact);
  EXPECT_EQ(runtime.pinned_bytes() - before, exact + 17 * mebibyte);
  const Span block = host.allocate(exact, "the host tier");
  std::vector<Span> others;
  for (int number = 0; number < 16; ++number) others.push_back(host.allocate(mebibyte, "others"));
  EXPECT_EQ(host.live_bytes(), exact + 16 * mebibyte);
  EXPECT_THROW(host.allocate(mebibyte, "one too many"), Error);
  host.release(block);
  for (const Span other : others) host.release(other);
  device.release(Tier::Host);
  EXPECT_EQ(runtime.pinned_bytes(), before);
  device.close();
}

}  // namespace
}  // namespace garonne::device
