#include "device_bench.hpp"

#include <fmt/format.h>
#include <mpi.h>

#include <cstring>
#include <optional>

#include "device/cuda_device.hpp"
#include "device/emulated_device.hpp"
#include "device/fake_cuda_runtime.hpp"
#include "device/finishing_blocks.hpp"
#include "dist/nccl_transport.hpp"
#include "fake_nccl.hpp"

namespace garonne::dist {
namespace {

using device::Mark;
using device::Span;

constexpr std::int64_t tier_bytes = std::int64_t{12} << 20;
constexpr double longest_hold_seconds = 0.002;
constexpr double longest_wait_seconds = 60;

std::optional<std::uint64_t> seed_of(const Session& session, bool late) {
  if (!late) return std::nullopt;
  return 17 + static_cast<std::uint64_t>(session.rank());
}

class EmulatedBench final : public DeviceBench {
 public:
  EmulatedBench(const Session& session, bool late, std::int64_t pinned_bytes)
      : device_({.limit_bytes = tier_bytes,
                 .delay_seed = seed_of(session, late),
                 .longest_delay_seconds = 0.0003,
                 .longest_hold_seconds = longest_hold_seconds,
                 .compute_thread = true,
                 .longest_wait_seconds = longest_wait_seconds}),
        pinned_({.tier = Tier::Host, .limit_bytes = pinned_bytes}),
        blocks_(device_, pinned_) {}

  device::Device& device() override { return device_; }
  std::unique_ptr<Transport> make(Session& session, CommunicationThread& thread,
                                  const std::vector<int>& members, TransportOptions options,
                                  const std::vector<int>&) override {
    side_ = {.device = &device_, .pinned = &blocks_};
    options.side = &side_;
    return make_transport("mpi", session, thread, members, options);
  }
  void put(std::function<void()> kernel) override {
    device_.run(Lane::Compute, std::move(kernel), "a kernel");
  }
  std::byte* find(const std::byte* address) override { return const_cast<std::byte*>(address); }
  std::vector<std::string> problems() override {
    if (pinned_.live_bytes() == 0) return {};
    return {fmt::format("{} bytes of the host tier are not given back", pinned_.live_bytes())};
  }

 private:
  device::TierMemory& memory() override { return device_.device_memory(); }

  DeviceSide side_;
  device::EmulatedDevice device_;
  device::TierMemory pinned_;
  device::FinishingBlocks blocks_;
};

class CudaBench final : public DeviceBench {
 public:
  CudaBench(const Session& session, bool late, bool nccl, std::int64_t pinned_bytes)
      : runtime_({.delay_seed = seed_of(session, late),
                  .longest_hold_seconds = longest_hold_seconds,
                  .bus_id = fmt::format("0000:{:02X}:00.0", session.rank() + 1)}),
        device_(std::make_unique<device::CudaDevice>(
            runtime_, device::CudaSettings{.spoil_blocks = true,
                                           .longest_wait_seconds = longest_wait_seconds})),
        memory_(device_->reserve(Tier::Device, tier_bytes)),
        pinned_(device_->reserve(Tier::Host, pinned_bytes)),
        blocks_(*device_, pinned_),
        side_({.device = device_.get(), .pinned = &blocks_, .runtime = &runtime_}) {
    if (nccl) nccl_ = std::make_shared<FakeNccl>(runtime_, MPI_COMM_WORLD);
  }
  ~CudaBench() override { device_.reset(); }

  device::Device& device() override { return *device_; }
  std::unique_ptr<Transport> make(Session& session, CommunicationThread& thread,
                                  const std::vector<int>& members, TransportOptions options,
                                  const std::vector<int>& nodes) override {
    options.side = &side_;
    if (!nccl_) return make_transport("mpi", session, thread, members, options);
    options.limit_seconds = longest_wait_seconds;
    return std::make_unique<NcclTransport>(
        session, thread, members, options,
        NcclParts{.library = nccl_, .sum = nccl_->sum(), .nodes = nodes});
  }
  void put(std::function<void()> kernel) override {
    runtime_.launch(device_->queue(Lane::Compute).native, std::move(kernel));
    device_->launched(Lane::Compute, "a kernel");
  }
  std::byte* find(const std::byte* address) override { return runtime_.device_side(address); }
  std::vector<std::string> problems() override {
    std::vector<std::string> found;
    if (pinned_.live_bytes() > 0) {
      found.push_back(fmt::format("{} bytes are left pinned", pinned_.live_bytes()));
    }
    device_->close();
    if (nccl_) {
      for (const std::string& each : nccl_->violations()) found.push_back(each);
      if (nccl_->live_communicators() > 0) found.push_back("communicators are left");
    }
    for (const std::string& each : runtime_.violations()) found.push_back(each);
    const device::FakeCudaCounts live = runtime_.live();
    if (live != device::FakeCudaCounts()) {
      found.push_back(fmt::format("{} streams, {} events, {} blocks are left", live.streams,
                                  live.events, live.device_blocks));
    }
    return found;
  }

 private:
  device::TierMemory& memory() override { return memory_; }

  device::FakeCudaRuntime runtime_;
  std::unique_ptr<device::CudaDevice> device_;
  device::TierMemory& memory_;
  device::TierMemory& pinned_;
  device::FinishingBlocks blocks_;
  DeviceSide side_;
  std::shared_ptr<FakeNccl> nccl_;
};

}  // namespace

std::byte* DeviceBench::allocate(std::int64_t bytes) {
  return memory().allocate(bytes, "a buffer of a test").data;
}

void DeviceBench::write_bytes(std::byte* to, std::vector<std::byte> bytes) {
  put([this, to, bytes = std::move(bytes)] {
    if (!bytes.empty()) std::memcpy(find(to), bytes.data(), bytes.size());
  });
}

void DeviceBench::read_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  put([=, this] {
    if (bytes > 0) std::memcpy(to, find(from), static_cast<std::size_t>(bytes));
  });
  device().wait(device().mark(Lane::Compute));
}

std::string to_string(BenchKind kind) {
  switch (kind) {
    case BenchKind::EmulatedMpi:
      return "EmulatedMpi";
    case BenchKind::CudaMpi:
      return "CudaMpi";
    case BenchKind::CudaNccl:
      break;
  }
  return "CudaNccl";
}

std::unique_ptr<DeviceBench> make_bench(BenchKind kind, const Session& session, bool late,
                                        std::int64_t pinned_bytes) {
  if (kind == BenchKind::EmulatedMpi) {
    return std::make_unique<EmulatedBench>(session, late, pinned_bytes);
  }
  return std::make_unique<CudaBench>(session, late, kind == BenchKind::CudaNccl, pinned_bytes);
}

}  // namespace garonne::dist
