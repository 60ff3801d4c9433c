// Lanes, marks, copies, failures, limits and ends of all devices; the GPU's on a made-up runtime.
#include <dirent.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "device/cpu_device.hpp"
#include "device/cuda_device.hpp"
#include "device/emulated_device.hpp"
#include "device/lane_error.hpp"
#include "fake_cuda_runtime.hpp"
#include "message_of.hpp"

namespace garonne::device {
namespace {

// A device and what it needs: devices with tiers of their own have memory in them.
struct Made {
  std::shared_ptr<FakeCudaRuntime> runtime;
  std::unique_ptr<Device> device;
  TierMemory* device_memory = nullptr;
  TierMemory* host_memory = nullptr;
};

// One of each way of working; late ones too, which changes nothing of what is promised.
struct Kind {
  std::string name;
  std::function<Made(double longest_wait_seconds)> make;
  int turns = 20;  // of tests that do the same again
};

Made emulated(bool compute_thread, std::uint64_t seed, double longest_wait) {
  auto device = std::make_unique<EmulatedDevice>(EmulatedSettings{
      .limit_bytes = 1 << 20,
      .delay_seed = seed,
      .compute_thread = compute_thread,
      .longest_wait_seconds = longest_wait,
  });
  TierMemory& memory = device->device_memory();
  return {nullptr, std::move(device), &memory, nullptr};
}

Made cuda(const FakeCudaSettings& fake, CudaSettings settings, double longest_wait) {
  Made made;
  made.runtime = std::make_shared<FakeCudaRuntime>(fake);
  settings.longest_wait_seconds = longest_wait;
  auto device = std::make_unique<CudaDevice>(*made.runtime, settings);
  made.device_memory = &device->reserve(Tier::Device, 1 << 20);
  made.host_memory = &device->reserve(Tier::Host, 1 << 20);
  made.device = std::move(device);
  return made;
}

// Streams that are threads take longer to start.
Kind cuda_kind(const std::string& name, const FakeCudaSettings& fake,
               const CudaSettings& settings) {
  return {name, [=](double wait) { return cuda(fake, settings, wait); }, 4};
}

class Devices : public testing::TestWithParam<Kind> {
 protected:
  std::shared_ptr<Device> make(double longest_wait_seconds = 60) {
    Made made = GetParam().make(longest_wait_seconds);
    device_memory_ = made.device_memory;
    host_memory_ = made.host_memory;
    if (made.runtime) runtimes_.push_back(made.runtime);
    return std::move(made.device);
  }

  // For the device that was made last.
  Span block(Tier tier, std::int64_t bytes) {
    TierMemory* const memory = tier == Tier::Device ? device_memory_ : host_memory_;
    if (memory != nullptr) return memory->allocate(bytes, "a block of the test");
    storage_.emplace_back(static_cast<std::size_t>(bytes));
    return {tier, storage_.back().data(), bytes};
  }

  void TearDown() override {
    for (const auto& runtime : runtimes_) {
      EXPECT_EQ(runtime->violations(), std::vector<std::string>());
      EXPECT_EQ(runtime->live(), FakeCudaCounts()) << "streams, events or memory are left";
    }
  }

 private:
  std::deque<std::vector<std::byte>> storage_;
  TierMemory* device_memory_ = nullptr;
  TierMemory* host_memory_ = nullptr;
  std::vector<std::shared_ptr<FakeCudaRuntime>> runtimes_;
};

INSTANTIATE_TEST_SUITE_P(
    All, Devices,
    testing::Values(
        Kind{"cpu",
             [](double wait) {
               return Made{nullptr, std::make_unique<CpuDevice>(2, wait), nullptr, nullptr};
             }},
        Kind{"emulated", [](double wait) { return emulated(false, 1, wait); }},
        Kind{"late", [](double wait) { return emulated(true, 2, wait); }},
        cuda_kind("cuda", {}, {}), cuda_kind("cuda_late", {.delay_seed = 3}, {}),
        cuda_kind("cuda_late_with_streams_of_communication", {.delay_seed = 4},
                  {.communication_streams = true}),
        cuda_kind("cuda_whose_streams_do_not_follow_threads",
                  {.delay_seed = 5, .wait_values = false}, {}),
        cuda_kind("cuda_synchronous", {.delay_seed = 6}, {.synchronous = true})),
    [](const auto& kind) { return kind.param.name; });

Span span(Tier tier, std::vector<float>& values) {
  return {tier, reinterpret_cast<std::byte*>(values.data()),
          static_cast<std::int64_t>(values.size() * sizeof(float))};
}

TEST_P(Devices, ACopyBringsTheBytes) {
  const auto device = make();
  const Span from = block(Tier::Host, 4000);
  const Span there = block(Tier::Device, 4000);
  const Span also_there = block(Tier::Device, 4000);
  const Span back = block(Tier::Host, 4000);
  for (int i = 0; i < 4000; ++i) from.data[i] = static_cast<std::byte>(i % 251);
  const std::array in = {device->copy(Lane::CopyIn, there, from, "in")};
  const std::array within = {device->copy(Lane::Compute, also_there, there, "within", in)};
  const Mark out = device->copy(Lane::CopyOut, back, also_there, "out", within);
  device->order(Lane::Compute, out);
  device->wait(device->mark(Lane::Compute));
  EXPECT_TRUE(std::equal(from.data, from.data + 4000, back.data));
  EXPECT_TRUE(device->done(in[0])) << "what a lane followed is done, too";
  EXPECT_TRUE(device->done(out));
}

TEST_P(Devices, AnEmptyCopyIsOne) {
  const auto device = make();
  device->wait(
      device->copy(Lane::CopyOut, {Tier::Host, nullptr, 0}, {Tier::Device, nullptr, 0}, "nothing"));
}

TEST_P(Devices, ALaneKeepsItsOrder) {
  std::vector<int> done;
  const auto device = make();
  for (int number = 0; number < 50; ++number) {
    device->run(
        Lane::DiskWrite, [&done, number] { done.push_back(number); }, "step");
  }
  device->wait(device->mark(Lane::DiskWrite));
  ASSERT_EQ(done.size(), 50U);
  for (int number = 0; number < 50; ++number)
    EXPECT_EQ(done[static_cast<std::size_t>(number)], number);
}

// Every piece of work adds one digit to a number that no lock guards.
TEST_P(Devices, LanesForkFromComputeFollowEachOtherAndJoin) {
  for (int turn = 0; turn < GetParam().turns; ++turn) {
    std::int64_t digits = 0;
    const auto add = [&digits](int digit) {
      return [&digits, digit] { digits = digits * 10 + digit; };
    };
    const auto device = make();
    device->run(Lane::Compute, add(1), "first");
    const std::array out = {device->run(Lane::CopyOut, add(2), "forks")};
    const std::array write = {device->run(Lane::DiskWrite, add(3), "follows", out)};
    const Mark update = device->run(Lane::HostCompute, add(4), "follows", write);
    device->order(Lane::CopyIn, update);
    device->run(Lane::CopyIn, add(5), "is ordered");
    device->order(Lane::Compute, device->mark(Lane::CopyIn));
    device->run(Lane::Compute, add(6), "joins");
    const std::array last = {device->run(Lane::CopyOut, add(7), "forks again")};
    device->run(Lane::Compute, add(8), "joins by its list", last);
    device->wait(device->mark(Lane::Compute));
    ASSERT_EQ(digits, 12345678);
  }
}

TEST_P(Devices, WhatNobodyPutIsReached) {
  const auto device = make();
  EXPECT_TRUE(device->done({}));
  EXPECT_TRUE(device->done(device->mark(Lane::CopyIn)));
  EXPECT_NO_THROW(device->wait(device->mark(Lane::CopyIn)));
  EXPECT_NO_THROW(device->order(Lane::CopyOut, device->mark(Lane::CopyIn)));
}

TEST_P(Devices, AskingIsEnoughForWorkToGoOn) {
  const auto device = make();
  for (int turn = 0; turn < 10; ++turn) {
    const Mark mark = device->run(
        Lane::DiskRead, [] {}, "read");
    while (!device->done(mark)) std::this_thread::yield();
  }
}

// A tensor that work holds must not be freed at one moment in this run and at another in the next.
TEST_P(Devices, WhatWorkCapturedIsGoneWhenItsMarkIsReached) {
  const auto device = make();
  for (const Lane lane : {Lane::Compute, Lane::CopyOut, Lane::HostCompute}) {
    for (int turn = 0; turn < GetParam().turns; ++turn) {
      auto captured = std::make_shared<int>(turn);
      const std::weak_ptr<int> watched = captured;
      const Mark mark = device->run(
          lane, [captured] {}, "holds");
      captured.reset();
      device->wait(mark);
      ASSERT_TRUE(watched.expired());
    }
  }
}

TEST_P(Devices, AFailureIsToldWhereSomebodyWaits) {
  bool ran = false;
  const auto device = make();
  const Mark failed = device->run(
      Lane::DiskWrite, [] { throw IoError("/scratch/states", "the disk is full"); },
      "states of layer 3");
  const Mark later = device->run(
      Lane::DiskWrite, [&ran] { ran = true; }, "states of layer 4");
  const std::array after = {failed};
  const Mark follows = device->run(
      Lane::CopyIn, [&ran] { ran = true; }, "follows", after);
  for (const Mark mark : {failed, later, follows}) {
    try {
      device->wait(mark);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const LaneError& error) {
      EXPECT_EQ(error.code(), ExitCode::Data) << "the exit code is that of the reason";
      EXPECT_EQ(error.lane(), Lane::DiskWrite);
      EXPECT_EQ(error.activity(), "states of layer 3");
      EXPECT_EQ(std::string(error.what()),
                "disk-write lane, states of layer 3: /scratch/states: the disk is full");
    }
  }
  EXPECT_THROW(device->done(later), LaneError);
  EXPECT_FALSE(ran) << "nothing can be trusted after a failure";
}

// Of two failures, the second follows from the first more often than not.
TEST_P(Devices, TheFirstFailureIsTheOneThatIsTold) {
  std::promise<void> started;
  std::promise<void> gate;
  std::atomic<bool> ran = false;
  const auto device = make();
  const Mark second = device->run(
      Lane::DiskRead,
      [&started, open = gate.get_future().share()] {
        started.set_value();
        open.wait();
        throw RefusedError("second");
      },
      "under way");
  EXPECT_FALSE(device->done(second));
  started.get_future().wait();
  const Mark first = device->run(
      Lane::CopyOut, [] { throw RefusedError("first"); }, "fails meanwhile");
  EXPECT_EQ(message_of([&] { device->wait(first); }), "copy-out lane, fails meanwhile: first");
  const Mark new_work = device->run(
      Lane::HostCompute, [&ran] { ran = true; }, "of no use");
  EXPECT_THROW(device->done(new_work), LaneError);
  gate.set_value();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(message_of([&] { device->wait(second); }), "copy-out lane, fails meanwhile: first");
  EXPECT_FALSE(ran) << "on no lane";
}

TEST_P(Devices, AForeignFailureHasOneLine) {
  const auto device = make();
  device->run(
      Lane::HostCompute, [] { throw std::runtime_error("singular\nframe 1\nframe 2"); }, "update");
  const std::string text = message_of([&] { device->wait(device->mark(Lane::HostCompute)); });
  EXPECT_EQ(text, "host-compute lane, update: singular");
}

TEST_P(Devices, AWaitThatTakesTooLongSaysForWhat) {
  std::promise<void> gate;
  {
    const auto device = make(0.05);
    // Whatever happens below, the lane must come to its end.
    const std::shared_ptr<void> opened(nullptr, [&](void*) { gate.set_value(); });
    const Mark stuck = device->run(
        Lane::Message, [open = gate.get_future().share()] { open.wait(); }, "value 7 to rank 3");
    try {
      device->wait(stuck);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const LaneError& error) {
      EXPECT_EQ(error.code(), ExitCode::Communication);
      EXPECT_EQ(std::string(error.what()),
                "message lane, value 7 to rank 3: not done after a wait of 0.05 s");
    }
  }
}

TEST_P(Devices, ItEndsWithWorkUnderWay) {
  for (int turn = 0; turn < GetParam().turns; ++turn) {
    std::atomic<int> carried_out = 0;
    auto captured = std::make_shared<int>(0);
    const std::weak_ptr<int> watched = captured;
    {
      const auto device = make();
      const Span host = block(Tier::Host, 400);
      const Span values = block(Tier::Device, 400);
      for (const Lane lane : {Lane::CopyOut, Lane::HostCompute}) {
        for (int piece = 0; piece < 50; ++piece) {
          device->run(
              lane, [&carried_out, captured] { ++carried_out; }, "one of many");
        }
      }
      device->copy(Lane::CopyOut, host, values, "last");
      device->order(Lane::HostCompute, device->mark(Lane::CopyOut));
      device->run(
          Lane::HostCompute, [&carried_out, captured] { ++carried_out; }, "waits");
      captured.reset();
    }
    EXPECT_TRUE(watched.expired()) << "what was dropped is destroyed";
    const int at_the_end = carried_out;
    std::this_thread::yield();
    EXPECT_EQ(carried_out, at_the_end);
  }
}

TEST_P(Devices, AnEndThatIsAskedForCarriesOutWhatWasPut) {
  for (int turn = 0; turn < GetParam().turns; ++turn) {
    const auto device = make();
    std::atomic<int> done = 0;
    const Mark first = device->run(
        Lane::Collective, [&] { ++done; }, "first");
    device->run(Lane::HostCompute, [&] { ++done; }, "second", {&first, 1});
    device->run(
        Lane::Compute, [&] { ++done; }, "third");
    device->end();
    ASSERT_EQ(done, 3);
  }
}

TEST_P(Devices, AnEndAfterAFailureIsOne) {
  const auto device = make();
  device->run(
      Lane::Message, [] { throw std::runtime_error("no cable"); }, "send");
  device->run(
      Lane::Collective, [] {}, "sum");
  device->end();
}

TEST_P(Devices, RefusesWhatIsNoCopy) {
  const auto device = make();
  std::vector<float> one(8);
  std::vector<float> other(8);
  std::vector<float> shorter(7);
  const Span on_device = span(Tier::Device, one);
  const Span on_host = span(Tier::Host, other);
  EXPECT_THROW(device->copy(Lane::CopyOut, on_device, on_host, "wrong way"), InternalError);
  EXPECT_THROW(device->copy(Lane::CopyIn, on_host, on_device, "wrong way"), InternalError);
  EXPECT_THROW(device->copy(Lane::DiskWrite, on_host, on_device, "no file"), InternalError);
  EXPECT_THROW(device->copy(Lane::Message, on_host, on_device, "no copy"), InternalError);
  EXPECT_THROW(device->copy(Lane::Compute, on_host, on_device, "between tiers"), InternalError);
  EXPECT_THROW(device->copy(Lane::CopyOut, span(Tier::Host, shorter), on_device, "short"),
               InternalError);
  Span overlapping = on_device;
  overlapping.tier = Tier::Host;
  overlapping.data += 28;
  EXPECT_THROW(device->copy(Lane::CopyOut, overlapping, on_device, "itself"), InternalError);
  overlapping.data += 4;
  overlapping.bytes = 0;
  EXPECT_THROW(device->run(Lane::CopyOut, nullptr, "no work"), InternalError);
  EXPECT_EQ(device->mark(Lane::CopyOut).number, 0U) << "nothing of this was put";
}

TEST_P(Devices, RefusesMarksThatItNeverGave) {
  const auto device = make();
  const std::array foreign = {Mark{Lane::CopyIn, 1}};
  EXPECT_THROW(device->wait(foreign[0]), InternalError);
  EXPECT_THROW(device->done(foreign[0]), InternalError);
  EXPECT_THROW(device->order(Lane::CopyOut, foreign[0]), InternalError);
  EXPECT_THROW(device->run(
                   Lane::CopyOut, [] {}, "follows", foreign),
               InternalError);
}

TEST_P(Devices, TimedMarksHaveWhatIsBetweenThem) {
  const auto device = make();
  for (const Lane lane : {Lane::Compute, Lane::CopyOut}) {
    const Mark before = device->timed_mark(lane);
    device->run(
        lane, [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }, "20 ms");
    const Mark after = device->timed_mark(lane);
    device->wait(after);
    EXPECT_GE(device->seconds(before, after), 0.02);
    EXPECT_EQ(device->seconds(after, before), -device->seconds(before, after));
    device->forget_times();
    EXPECT_THROW(device->seconds(before, after), InternalError);
    const Mark plain = device->run(
        lane, [] {}, "not timed");
    device->wait(plain);
    EXPECT_THROW(device->seconds(plain, plain), InternalError);
  }
}

TEST_P(Devices, KernelsOnLanesHaveOneThread) {
  const auto device = make();
  EXPECT_EQ(device->queue(Lane::HostCompute).threads, 1);
  EXPECT_EQ(device->queue(Lane::HostCompute).native, nullptr);
  EXPECT_EQ(device->queue(Lane::Compute).device, device->kind());
  EXPECT_GT(device->memory().total_bytes, 0);
  EXPECT_GE(device->memory().free_bytes, 0);
  EXPECT_LE(device->memory().free_bytes, device->memory().total_bytes);
}

int threads_of_process() {
  int threads = 0;
  DIR* folder = opendir("/proc/self/task");
  while (const dirent* entry = readdir(folder)) threads += entry->d_name[0] != '.';
  closedir(folder);
  return threads;
}

// A thread that was joined may still be listed for a moment.
bool come_to_threads(int wanted) {
  for (int tries = 0; tries < 1000 && threads_of_process() != wanted; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return threads_of_process() == wanted;
}

TEST(CpuDevice, StartsALaneWhenItIsFirstUsed) {
  std::thread([] {}).join();  // the thread sanitizer starts one of its own with the first
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const int before = threads_of_process();
  {
    CpuDevice device(3);
    EXPECT_EQ(device.kind(), DeviceKind::Cpu);
    EXPECT_EQ(device.queue(Lane::Compute).threads, 3);
    const std::thread::id here = std::this_thread::get_id();
    std::thread::id compute;
    device.run(
        Lane::Compute, [&] { compute = std::this_thread::get_id(); }, "here");
    EXPECT_EQ(compute, here) << "at once, on the thread that calls";
    EXPECT_TRUE(come_to_threads(before));
    std::thread::id first;
    std::thread::id second;
    std::array<char, 16> name{};
    sigset_t blocked;
    device.run(
        Lane::CopyIn,
        [&] {
          first = std::this_thread::get_id();
          prctl(PR_GET_NAME, name.data());
          pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
        },
        "first");
    device.wait(device.run(
        Lane::CopyIn, [&] { second = std::this_thread::get_id(); }, "second"));
    EXPECT_TRUE(come_to_threads(before + 1));
    EXPECT_EQ(first, second);
    EXPECT_NE(first, here);
    EXPECT_STREQ(name.data(), "copy-in");
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) EXPECT_EQ(sigismember(&blocked, signal), 1);
    device.wait(device.run(
        Lane::DiskRead, [] {}, "another"));
    EXPECT_TRUE(come_to_threads(before + 2));
  }
  EXPECT_TRUE(come_to_threads(before));
}

TEST(CpuDevice, WhatFailsOnTheCallingThreadIsThrownThere) {
  CpuDevice device;
  EXPECT_THROW(device.run(
                   Lane::Compute, [] { throw RefusedError("no"); }, "here"),
               RefusedError);
  EXPECT_NO_THROW(device.wait(device.run(
      Lane::CopyIn, [] {}, "goes on")));
}

}  // namespace
}  // namespace garonne::device
