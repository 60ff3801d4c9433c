// The device that a rank of a run computes on, and the memory of its tensors there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/config.hpp"
#include "device/device.hpp"
#include "device/gpu_facts.hpp"
#include "device/gpu_speed.hpp"
#include "dist/session.hpp"
#include "dist/transport.hpp"
#include "exec/device_tier.hpp"
#include "exec/executor.hpp"
#include "exec/staging.hpp"
#include "kernels/session.hpp"
#include "plan/model/cluster.hpp"
#include "plan/model/device_facts.hpp"

namespace garonne::train {

// run.device; "auto" is a GPU where this build has CUDA and the process sees one, else the
// processor. ConfigError for "auto" where the CUDA runtime fails, as with a driver that is too old.
DeviceKind device_kind(const RunConfig& config);

// NotBuiltError for a GPU in a build without CUDA: for who plans for this machine.
void expect_device_built(const RunConfig& config);

// What plans for run.device here go by. Of a GPU that is its kind alone: bounds hold for each.
plan::DeviceFacts device_facts(const RunConfig& config);
// For who plans on a cluster file: its GPU, where it says one, else as here.
plan::DeviceFacts device_facts(const RunConfig& config, const plan::Cluster& cluster);

// run.graphs.
exec::GraphUse graph_use(const RunConfig& config);

// Made before anything else that uses a GPU.
class RunDevice {
 public:
  // NotBuiltError for a GPU in a build without CUDA, ConfigError where there is none, where it lets
  // nobody in, or where ranks find different kinds. Collective over all ranks.
  // `link_bytes_per_second`: of copies between an emulated device and its host, whose lanes are
  // late by nothing else then; 0: as fast as they are, and late at random.
  RunDevice(const RunConfig& config, dist::Session& session, double link_bytes_per_second = 0);
  // The processor: for who has no session.
  RunDevice();
  ~RunDevice();
  RunDevice(const RunDevice&) = delete;
  RunDevice& operator=(const RunDevice&) = delete;

  DeviceKind kind() const { return device_->kind(); }
  device::Device& device() { return *device_; }
  Queue compute() const { return device_->queue(Lane::Compute); }

  // Lines for people, of rank 0: what "auto" came to, which GPU, who takes what of its memory.
  // Empty where run.device says it all.
  const std::string& text() const { return text_; }

  // What Programs may take of each rank: memory.budget, on GPUs less what libraries keep there of
  // it; "auto" is what is free. The least of all ranks. Collective over all ranks.
  std::int64_t budget_bytes(const RunConfig& config, dist::Session& session);
  // What libraries keep of memory.budget.
  std::int64_t kept_bytes() const;

  // Which one it is, of this rank; nothing where it is no GPU.
  std::optional<device::GpuFacts> gpu() const;
  // How fast it copies, of this rank; nothing where it is no GPU. Before any tier is made.
  std::optional<device::GpuSpeed> gpu_speed();
  // What tables of costs are kept by: the processor with so many threads, or the GPU.
  std::string machine_text(int threads) const;

  // A tier in which Programs have `bytes`. Of a GPU there is one at a time: nothing of an earlier
  // one is in use any more.
  std::unique_ptr<exec::DeviceTier> make_tier(std::int64_t bytes);
  // The same of a GPU, for nodes that are measured there: with `needed_bytes`, or all that is free
  // where that is less. Whatever the budget is, others have the rest of the device.
  std::unique_ptr<exec::DeviceTier> make_measuring_tier(std::int64_t needed_bytes);
  // Of a GPU, else null.
  exec::Staging* staging() { return staging_.get(); }

  // For steps that are recorded (exec::Executor::use_graphs): what records on a GPU, else null,
  // also where run.graphs is "never" or each piece of work is waited for; and room of the tier that
  // was made last for what changes from step to step.
  device::Captures* captures() const;
  std::byte* step_numbers() const;

  // Kernels can be put into Compute from then on; there is a session of kernels. Once. Collective
  // over all ranks.
  void use_kernels(dist::Session& session);

  // Pinned memory of a GPU for the tier of the host below it; elsewhere nothing is to be done. No
  // executor has been made, and no transport: staging() and side() are others afterwards.
  void pin_host_tier(std::int64_t room_bytes);
  // Of it; empty where memory of the host is not pinned.
  device::Span host_tier() const;
  // The same for pieces of what goes between a GPU and memory.disk; empty without either.
  device::Span disk_pieces() const;

  // What carries messages between ranks: grid.transport, or what "auto" comes to.
  std::string transport(const RunConfig& config) const;
  // What transports between buffers of a GPU work with, else null. Transports go before this.
  const dist::DeviceSide* side() const;
  // Pinned memory for so many bytes that messages over MPI have under way. No executor has been
  // made, and no transport: staging() and side() are others afterwards.
  void pin_messages(std::int64_t bytes);
  // The same for what a recorded step keeps, where steps of the Program may be recorded.
  void pin_recorded(const nn::Model& model, const plan::Program& program);

 private:
  class Gpu;

  void pin();
  std::unique_ptr<exec::DeviceTier> make_gpu_tier(std::int64_t bytes, const std::string& purpose);

  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<device::Device> device_;
  std::unique_ptr<exec::Staging> staging_;
  std::unique_ptr<kernels::StreamSession> kernels_;
  std::string text_;
};

}  // namespace garonne::train
