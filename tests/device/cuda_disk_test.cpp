// A disk below a GPU: what goes between a file and memory that the host does not reach, by threads
// of the disk's lanes and through pinned pieces.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "device/cpu_device.hpp"
#include "device/cuda_device.hpp"
#include "device/disk_tier.hpp"
#include "device/lane_error.hpp"
#include "fake_cuda_runtime.hpp"
#include "message_of.hpp"

namespace garonne::device {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t small_room = std::int64_t{1} << 20;
constexpr std::int64_t large_room = 4 * small_room;
constexpr std::int64_t piece_bytes = host_allocation_granularity;

class CudaDisks : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::current_path() / "cuda-disk-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  // Every test ends with a runtime that has nothing to complain about and nothing left.
  void TearDown() override {
    end();
    fs::remove_all(folder_);
  }
  void end() {
    device_.reset();
    disk_.reset();
    if (!runtime_) return;
    EXPECT_EQ(runtime_->violations(), std::vector<std::string>());
    EXPECT_EQ(runtime_->live(), FakeCudaCounts());
    runtime_.reset();
  }

  CudaDevice& make(const FakeCudaSettings& fake = {}) {
    end();
    runtime_ = std::make_unique<FakeCudaRuntime>(fake);
    device_ = std::make_unique<CudaDevice>(*runtime_, CudaSettings{.longest_wait_seconds = 60});
    memory_ = &device_->reserve(Tier::Device, large_room);
    TierMemory& host = device_->reserve(Tier::Host, small_room);
    disk_ = std::make_unique<DiskTier>(
        DiskTierSettings{.folder = folder_,
                         .limit_bytes = large_room,
                         .pinned = host.allocate(disk_pinned_pieces * piece_bytes, "pieces")});
    return *device_;
  }

  // Kernels on Compute that make all bytes of a block, and look at them.
  void set(Span block, int first) {
    std::byte* const side = runtime_->device_side(block.data);
    runtime_->launch(device_->queue(Lane::Compute).native, [=] {
      for (std::int64_t k = 0; k < block.bytes; ++k) side[k] = made(first, k);
    });
  }
  void look(Span block, int first, std::int64_t& wrong) {
    const std::byte* const side = runtime_->device_side(block.data);
    runtime_->launch(device_->queue(Lane::Compute).native, [=, &wrong] {
      for (std::int64_t k = 0; k < block.bytes; ++k) wrong += side[k] != made(first, k);
    });
  }
  static std::byte made(int first, std::int64_t k) {
    return static_cast<std::byte>((first + k * 7 + k / piece_bytes) % 251);
  }

  Mark write(Span block, Span from, std::span<const Mark> after = {}) {
    ThreadCopies& copies = device_->thread_copies(Lane::DiskWrite);
    return device_->run(
        Lane::DiskWrite, [=, this, &copies] { disk_->write(block, from, copies); }, "out", after);
  }
  Mark read(Span block, Span to, std::span<const Mark> after = {}) {
    ThreadCopies& copies = device_->thread_copies(Lane::DiskRead);
    return device_->run(
        Lane::DiskRead, [=, this, &copies] { disk_->read(block, to, copies); }, "in", after);
  }

  std::string folder_;
  std::unique_ptr<FakeCudaRuntime> runtime_;
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<DiskTier> disk_;
  TierMemory* memory_ = nullptr;
};

// Some after each other and beside each other, while blocks are used again as soon as they may be.
TEST_F(CudaDisks, GiveBackWhatTheyWereGiven) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    CudaDevice& device = make({.delay_seed = seed, .wait_values = seed % 2 == 0});
    std::int64_t wrong = 0;
    int first = static_cast<int>(seed);
    for (const std::int64_t bytes : {std::int64_t{4}, piece_bytes - 4, piece_bytes, piece_bytes + 4,
                                     7 * piece_bytes + 12, 20 * piece_bytes}) {
      const Span here = memory_->allocate(bytes, "here");
      const Span there = memory_->allocate(bytes, "there");
      const Span on_disk = disk_->memory().allocate(std::max<std::int64_t>(bytes, 1), "on disk");
      set({here.tier, here.data, bytes}, ++first);
      const std::array out = {write(on_disk, {here.tier, here.data, bytes})};
      const Mark in = read(on_disk, {there.tier, there.data, bytes}, out);
      device.order(Lane::Compute, out[0]);
      set({here.tier, here.data, bytes}, 0);
      device.order(Lane::Compute, in);
      look({there.tier, there.data, bytes}, first, wrong);
      device.launched(Lane::Compute, "look");
      for (const Span block : {here, there}) memory_->release(block);
      device.wait(in);
      disk_->memory().release(on_disk);
    }
    device.wait(device.mark(Lane::Compute));
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(memory_->live_bytes(), 0);
  }
}

TEST_F(CudaDisks, TakePiecesThatArePinnedAndBytesThatAreThere) {
  CudaDevice& device = make();
  const Span block = memory_->allocate(piece_bytes, "block");
  const Span on_disk = disk_->memory().allocate(piece_bytes, "on disk");
  std::vector<std::byte> ordinary(static_cast<std::size_t>((disk_pinned_pieces + 1) * piece_bytes));
  const auto address = reinterpret_cast<std::uintptr_t>(ordinary.data());
  DiskTier other({.folder = folder_,
                  .limit_bytes = small_room,
                  .pinned = {Tier::Host, ordinary.data() + (piece_bytes - address % piece_bytes),
                             disk_pinned_pieces * piece_bytes}});
  const Span on_other = other.memory().allocate(piece_bytes, "on the other disk");
  ThreadCopies& copies = device.thread_copies(Lane::DiskWrite);
  EXPECT_THROW(other.write(on_other, block, copies), InternalError);
  EXPECT_THROW(other.read(on_other, block, copies), InternalError);
  Span more = block;
  more.bytes *= 2;
  EXPECT_THROW(disk_->write(on_disk, more, copies), InternalError);
  EXPECT_THROW(disk_->read(on_disk, more, copies), InternalError);
  DiskTier without({.folder = folder_, .limit_bytes = small_room});
  EXPECT_THROW(without.write(without.memory().allocate(piece_bytes, "on a disk"), block, copies),
               InternalError);
  for (const Lane lane : {Lane::Compute, Lane::CopyOut, Lane::CopyIn})
    EXPECT_THROW(device.thread_copies(lane), InternalError);
  EXPECT_THROW(CpuDevice().thread_copies(Lane::DiskWrite), InternalError);
}

// Each call, wherever it is made, with the lane that made it.
TEST_F(CudaDisks, SayWhichCallFailed) {
  for (const std::string call : {"cudaMemcpyAsync", "cudaEventRecord"}) {
    for (int number = 0; number < 3; ++number) {
      CudaDevice& device = make();
      const Span block = memory_->allocate(8 * piece_bytes, "block");
      const Span on_disk = disk_->memory().allocate(8 * piece_bytes, "on disk");
      device.wait(read(on_disk, block));
      ThreadCopies& copies = device.thread_copies(Lane::DiskWrite);
      const Mark out = device.run(
          Lane::DiskWrite,
          [&, number] {
            runtime_->fail(call, number);
            disk_->write(on_disk, block, copies);
          },
          "out");
      const std::string text = message_of([&] { device.wait(out); });
      EXPECT_EQ(text.find("disk-write lane, a piece of a copy: " + call + ": "), 0U) << text;
      EXPECT_EQ(runtime_->failures_left(), 0);
    }
  }
}

// What is under way when the device ends comes to its end, or is told that it does not.
TEST_F(CudaDisks, TheirCopiesEndWithTheDevice) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    make({.delay_seed = seed});
    const Span block = memory_->allocate(20 * piece_bytes, "block");
    const Span on_disk = disk_->memory().allocate(20 * piece_bytes, "on disk");
    const std::array out = {write(on_disk, block)};
    read(on_disk, block, out);
    end();
  }
}

}  // namespace
}  // namespace garonne::device
