#include "train/setup/run_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "device/cpu_device.hpp"
#include "device/cuda_budget.hpp"
#include "device/cuda_device.hpp"
#include "device/cuda_runtime.hpp"
#include "device/cuda_start.hpp"
#include "device/disk_tier.hpp"
#include "device/emulated_device.hpp"
#include "device/finishing_blocks.hpp"
#include "device/rank_device.hpp"
#include "device/visible_devices.hpp"
#include "dist/fact_agreement.hpp"
#include "dist/rank_devices.hpp"
#include "dist/transports.hpp"
#include "exec/gpu_library.hpp"
#include "exec/product_switches.hpp"
#include "exec/profile/cached_costs.hpp"
#include "exec/profile/profile.hpp"
#include "train/setup/communicators.hpp"
#include "train/setup/rank_agreement.hpp"
#include "train/setup/staged_messages.hpp"

namespace garonne::train {
namespace {

// Other ranks wait for what a lane here holds back.
constexpr double longest_hold_seconds = 0.02;

// For the workspaces of libraries while nobody knows yet what they are.
constexpr std::int64_t room_for_workspaces = std::int64_t{256} << 20;

std::int64_t disk_piece_bytes(const RunConfig& config) {
  return config.memory.disk.empty() ? 0 : device::disk_pinned_bytes;
}

// Pieces of copies, and a page for the samples of each micro-batch.
std::int64_t pinned_bytes(const RunConfig& config) {
  constexpr std::int64_t pieces = std::int64_t{64} << 20;
  return pieces + (micro_batches_per_rank(config) + 1) * device::host_allocation_granularity +
         disk_piece_bytes(config);
}

const char* environment(const char* name) {
  return std::getenv(name);  // NOLINT(concurrency-*)
}

// Only where there is none the answer is no: a GPU that cannot be used is an error.
bool sees_a_gpu(const std::string& asked) {
  if (!exec::built_with_cuda()) return false;
  return device::visible_gpus(*device::make_cuda_runtime(), asked) > 0;
}

// What "auto" came to, and why.
std::string reason_of(DeviceKind kind) {
  if (kind == DeviceKind::Cuda) return "cuda";
  return exec::built_with_cuda() ? "cpu, since no GPU is visible"
                                 : "cpu, since this build has no CUDA";
}

}  // namespace

DeviceKind device_kind(const RunConfig& config) {
  if (config.run.device == "auto")
    return sees_a_gpu(config.run.device) ? DeviceKind::Cuda : DeviceKind::Cpu;
  for (const DeviceKind kind : {DeviceKind::Cpu, DeviceKind::Emulated, DeviceKind::Cuda}) {
    if (config.run.device == to_string(kind)) return kind;
  }
  throw InternalError("no device is called " + config.run.device);
}

exec::GraphUse graph_use(const RunConfig& config) {
  if (config.run.graphs == "auto") return exec::GraphUse::Auto;
  return config.run.graphs == "always" ? exec::GraphUse::Always : exec::GraphUse::Never;
}

void expect_device_built(const RunConfig& config) {
  if (device_kind(config) == DeviceKind::Cuda && !exec::built_with_cuda()) {
    throw NotBuiltError(
        "CUDA",
        "configure with scripts/setup --cuda; to plan for other machines name their "
        "cluster file with --cluster, or set run.device to \"cpu\"");
  }
}

plan::DeviceFacts device_facts(const RunConfig& config) {
  return {.kind = device_kind(config)};
}

plan::DeviceFacts device_facts(const RunConfig& config, const plan::Cluster& cluster) {
  return cluster.device.is_gpu() ? cluster.device : device_facts(config);
}

// What stands behind a device that is a GPU. The device and its tiers go before it.
class RunDevice::Gpu {
 public:
  // Collective over all ranks.
  Gpu(const RunConfig& config, dist::Session& session)
      : runtime(device::make_cuda_runtime()),
        records(graph_use(config) != exec::GraphUse::Never),
        pinned_bytes_(pinned_bytes(config)),
        disk_piece_bytes_(disk_piece_bytes(config)) {
    const char* const visible = environment("CUDA_VISIBLE_DEVICES");
    session.agree([&] {
      device::check_visible_devices(visible, device::visible_gpus(*runtime, config.run.device));
      exec::prepare_gpu_library();
      const ProductRounding products = parse_product_rounding(config.train.products);
      exec::check_rounding_override(environment("NVIDIA_TF32_OVERRIDE"), products);
      exec::set_product_rounding(products);
    });
    dist::RankDevices found = dist::assign_devices(
        session, *runtime, visible, environment("CUDA_MPS_PIPE_DIRECTORY") != nullptr,
        config.grid.transport == "nccl");
    assignment = std::move(found.mine);
    table = std::move(found.table);
    session.agree([&] { facts = device::gpu_facts(*runtime, assignment.device.ordinal); });
    transport = config.grid.transport;
    if (transport != "auto") return;
    // NCCL has one rank on a device.
    const std::int64_t shared = assignment.shared() ? 1 : 0;
    const bool any = session.all_reduce_max(std::vector<std::int64_t>{shared})[0] > 0;
    transport = transport_on_gpus(any, dist::built_with_nccl());
    if (session.size() == 1) return;
    table += "grid.transport = auto: " + transport;
    table += any || dist::built_with_nccl() ? "\n" : ", since this build has no NCCL\n";
  }

  // Its waits have no limit: own work may take long, and transports watch what others are waited
  // for (run.timeout), with group and ranks.
  std::unique_ptr<device::Device> make_device() {
    const device::CudaSettings settings{
        .ordinal = assignment.device.ordinal,
        .synchronous = device::asked_for_synchronous(environment("GARONNE_SYNCHRONOUS")),
        .numa_node = assignment.locality.numa_node};
    records = records && !settings.synchronous;
    auto device = std::make_unique<device::CudaDevice>(*runtime, settings);
    cuda = device.get();
    exec::use_gpu(cuda->queue(Lane::Compute), assignment.device.ordinal);
    return device;
  }

  // What libraries keep of a tier for as long as they are used; by then their code is loaded.
  std::int64_t measure_workspaces() {
    cuda->reserve(Tier::Device, room_for_workspaces);
    std::int64_t bytes = 0;
    {
      exec::DeviceTier scratch(cuda->reserved(Tier::Device), DeviceKind::Cuda);
      const exec::DeviceScope scope(scratch);
      warm_up();
      bytes = scratch.live_bytes();
      exec::drop_gpu_workspaces();
    }
    cuda->release(Tier::Device);
    return bytes;
  }

  // In each tier.
  std::int64_t step_number_bytes() const { return records ? exec::step_number_bytes : 0; }
  // What tiers below the device have has its place in what is pinned.
  void take_of_tiers(device::TierMemory& pinned) {
    if (host_tier_bytes > 0) host_tier = pinned.allocate(host_tier_bytes, "the host tier");
    if (disk_piece_bytes_ > 0) disk_pieces = pinned.allocate(disk_piece_bytes_, "pieces for disk");
  }
  void drop_of_tiers() {
    for (device::Span* const span : {&host_tier, &disk_pieces}) {
      if (span->data != nullptr) cuda->reserved(Tier::Host)->release(*span);
      *span = {};
    }
  }

  void warm_up() {
    const Queue queue = cuda->queue(Lane::Compute);
    exec::warm_up_gpu_library(queue);
    cuda->wait(cuda->launched(Lane::Compute, "the first products"));
  }

  // What was made is not in use any more.
  void drop_tier() {
    if (!has_tier) return;
    exec::drop_gpu_workspaces();
    cuda->reserved(Tier::Device)->release(step_numbers);
    step_numbers = {};
    cuda->release(Tier::Device);
    has_tier = false;
  }

  // After libraries have loaded their code.
  std::string memory_text() const {
    const device::MemoryFacts memory = cuda->memory();
    const std::int64_t taken = memory.total_bytes - memory.free_bytes;
    return fmt::format(
        "device memory: {} taken by the driver, code of libraries and other processes, {} free; of "
        "the budget {} are workspaces of matrix products ({}); pinned on the host {}\n",
        format_bytes(taken), format_bytes(memory.free_bytes), format_bytes(workspace_bytes),
        exec::gpu_environment_text(), format_bytes(pinned_bytes_) + pinned_where());
  }

  // As the driver makes it, which is for the whole of it.
  std::string pinned_where() const {
    const std::optional<int> node = assignment.locality.numa_node;
    if (!node) return "";
    if (cuda->numa_refusal().empty()) return fmt::format(", on NUMA node {}", *node);
    return fmt::format(", not bound to NUMA node {}, which is the device's: {}", *node,
                       cuda->numa_refusal());
  }

  std::int64_t pinned() const { return pinned_bytes_; }

  std::int64_t free_bytes() const { return cuda->memory().free_bytes; }

  const std::unique_ptr<device::CudaRuntime> runtime;
  device::DeviceAssignment assignment;
  device::GpuFacts facts;
  std::string table;      // of all ranks' devices, for people; on rank 0
  std::string transport;  // what grid.transport comes to
  device::CudaDevice* cuda = nullptr;
  std::int64_t workspace_bytes = 0;
  std::int64_t message_bytes = 0;  // pinned, as the next two
  std::int64_t recorded_bytes = 0;
  std::int64_t host_tier_bytes = 0;  // of the tier below the device
  device::Span host_tier;
  device::Span disk_pieces;
  bool is_pinned = true;  // as these sizes say
  bool has_tier = false;
  bool records = false;  // steps may be recorded
  device::Span step_numbers;
  std::unique_ptr<device::FinishingBlocks> pinned_blocks;  // of the host tier
  dist::DeviceSide side;

 private:
  const std::int64_t pinned_bytes_;
  const std::int64_t disk_piece_bytes_;
};

RunDevice::RunDevice(const RunConfig& config, dist::Session& session,
                     double link_bytes_per_second) {
  DeviceKind kind{};
  session.agree([&] {
    kind = device_kind(config);
    if (kind == DeviceKind::Cuda) return expect_device_built(config);
    if (graph_use(config) != exec::GraphUse::Always) return;
    throw ConfigError("run.graphs", "always",
                      fmt::format("steps of GPUs are recorded, and run.device is \"{}\". Set it to "
                                  "\"auto\"",
                                  to_string(kind)));
  });
  dist::agree_on(session, [&] {
    return dist::Facts{{"the device of run.device = \"" + config.run.device + "\"",
                        std::string(to_string(kind)),
                        dist::advise("set run.device to \"cpu\", or give every rank a GPU"), ""}};
  });
  if (kind == DeviceKind::Cuda) gpu_ = std::make_unique<Gpu>(config, session);
  if (config.run.device == "auto") text_ = "run.device = auto: " + reason_of(kind) + "\n";
  switch (kind) {
    case DeviceKind::Cpu:
      device_ = std::make_unique<device::CpuDevice>();
      break;
    case DeviceKind::Emulated: {
      std::optional<std::uint64_t> seed;
      std::map<Lane, double> rates;
      if (link_bytes_per_second > 0) {
        rates = {{Lane::CopyOut, link_bytes_per_second}, {Lane::CopyIn, link_bytes_per_second}};
      } else {
        seed = static_cast<std::uint64_t>(config.train.seed) +
               (static_cast<std::uint64_t>(session.rank()) << 32);
      }
      // Tensors are in a tier of their own, so none of its memory is used.
      device_ = std::make_unique<device::EmulatedDevice>(
          device::EmulatedSettings{.limit_bytes = 0,
                                   .delay_seed = seed,
                                   .longest_hold_seconds = longest_hold_seconds,
                                   .bytes_per_second = std::move(rates),
                                   .compute_thread = true});
      break;
    }
    case DeviceKind::Cuda:
      session.agree([&] {
        device::start_on_gpu([&] {
          device_ = gpu_->make_device();
          gpu_->workspace_bytes = gpu_->measure_workspaces() + gpu_->step_number_bytes();
          pin();
        });
      });
      gpu_->side = {.device = device_.get(),
                    .pinned = gpu_->pinned_blocks.get(),
                    .runtime = gpu_->runtime.get(),
                    .ordinal = gpu_->assignment.device.ordinal};
      text_ += gpu_->table;
      text_ += gpu_->memory_text();
      break;
  }
}

RunDevice::RunDevice() : device_(std::make_unique<device::CpuDevice>()) {}

RunDevice::~RunDevice() {
  // Before the stream that they are of.
  kernels_.reset();
  // Blocks of a tier that goes with the device.
  if (gpu_ && gpu_->has_tier) exec::drop_gpu_workspaces();
}

std::int64_t RunDevice::budget_bytes(const RunConfig& config, dist::Session& session) {
  if (!gpu_) return budget_of_ranks(config, session);
  std::int64_t bytes = config.memory.budget;
  session.agree([&] {
    const bool over_nccl = session.size() > 1 && gpu_->transport == "nccl";
    const std::int64_t nccl = over_nccl ? communicator_bytes(config) : 0;
    const std::string beside =
        over_nccl ? fmt::format(" beside {} that NCCL may take", format_bytes(nccl)) : "";
    const std::int64_t free = gpu_->free_bytes() - nccl;
    if (free <= 0) {
      throw ConfigError("memory.budget", "",
                        fmt::format("nothing is free on the device{}. End what else runs there, or "
                                    "take a grid of smaller groups",
                                    beside));
    }
    const auto sharing = static_cast<int>(gpu_->assignment.sharing.size());
    if (bytes == RunConfig::automatic_budget) {
      bytes = device::automatic_gpu_budget(free, sharing);
      text_ += fmt::format("memory.budget = auto: {} a rank, by what is free on the device{}\n",
                           format_bytes(bytes), beside);
    } else if (device::tier_bytes_of_budget(bytes) > free / sharing) {
      throw ConfigError(
          "memory.budget", format_bytes(bytes),
          fmt::format("a sixteenth more than that, for holes between blocks, is more than the {} "
                      "({}) that are free on the device for each of {} ranks{}. Set it to "
                      "\"auto\", or end what else runs there",
                      free / sharing, format_bytes(free / sharing), sharing, beside));
    }
    bytes =
        bytes / cuda_allocation_granularity * cuda_allocation_granularity - gpu_->workspace_bytes;
    if (bytes > 0) return;
    throw ConfigError("memory.budget", "",
                      fmt::format("nothing is left beside the {} that libraries keep on the device",
                                  format_bytes(gpu_->workspace_bytes)));
  });
  return session.all_reduce_min(std::vector<std::int64_t>{bytes})[0];
}

std::int64_t RunDevice::kept_bytes() const {
  return gpu_ ? gpu_->workspace_bytes : 0;
}

void RunDevice::use_kernels(dist::Session& session) {
  if (!gpu_) return;
  session.agree([&] { kernels_ = std::make_unique<kernels::StreamSession>(compute()); });
}

std::string RunDevice::transport(const RunConfig& config) const {
  if (gpu_) return gpu_->transport;
  return config.grid.transport == "auto" ? "mpi" : config.grid.transport;
}

const dist::DeviceSide* RunDevice::side() const {
  return gpu_ ? &gpu_->side : nullptr;
}

void RunDevice::pin() {
  device::CudaDevice& cuda = *gpu_->cuda;
  if (staging_) {
    staging_->wait();
    staging_.reset();
    gpu_->pinned_blocks.reset();
    gpu_->drop_of_tiers();
    cuda.release(Tier::Host);
  }
  // The tier below the device is one block, in which all has its place.
  cuda.reserve(Tier::Host, gpu_->pinned() + gpu_->message_bytes + gpu_->recorded_bytes,
               gpu_->host_tier_bytes);
  const std::shared_ptr<device::TierMemory> memory = cuda.reserved(Tier::Host);
  gpu_->take_of_tiers(*memory);
  gpu_->pinned_blocks = std::make_unique<device::FinishingBlocks>(cuda, *memory);
  staging_ = std::make_unique<exec::Staging>(cuda, memory, gpu_->pinned_blocks.get());
  gpu_->side.pinned = gpu_->pinned_blocks.get();
  gpu_->is_pinned = true;
}

device::Captures* RunDevice::captures() const {
  return gpu_ && gpu_->records ? gpu_->cuda : nullptr;
}

std::byte* RunDevice::step_numbers() const {
  return gpu_ ? gpu_->step_numbers.data : nullptr;
}

void RunDevice::pin_recorded(const nn::Model& model, const plan::Program& program) {
  if (!gpu_) return;
  // What is pinned is given back and made anew, which takes long: pin_host_tier() follows, and does
  // so for all three at once.
  if (gpu_->transport == "mpi") {
    gpu_->message_bytes = staged_bytes(program);
    gpu_->is_pinned = gpu_->is_pinned && gpu_->message_bytes == 0;
  }
  if (captures() == nullptr || !exec::graph_obstacle(program, gpu_->transport).empty()) return;
  gpu_->recorded_bytes = exec::recorded_pinned_bytes(model, program);
  gpu_->is_pinned = false;
}

void RunDevice::pin_messages(std::int64_t bytes) {
  if (!gpu_ || bytes == 0 || (gpu_->is_pinned && gpu_->message_bytes == bytes)) return;
  gpu_->message_bytes = bytes;
  device::start_on_gpu([&] { pin(); });
}

void RunDevice::pin_host_tier(std::int64_t room_bytes) {
  if (!gpu_) return;
  const std::int64_t bytes = round_up(room_bytes, device::host_allocation_granularity);
  if (gpu_->is_pinned && bytes == gpu_->host_tier_bytes) return;
  gpu_->host_tier_bytes = bytes;
  device::start_on_gpu([&] { pin(); });
}

device::Span RunDevice::host_tier() const {
  return gpu_ ? gpu_->host_tier : device::Span();
}

device::Span RunDevice::disk_pieces() const {
  return gpu_ ? gpu_->disk_pieces : device::Span();
}

std::optional<device::GpuFacts> RunDevice::gpu() const {
  if (!gpu_) return {};
  return gpu_->facts;
}

std::optional<device::GpuSpeed> RunDevice::gpu_speed() {
  if (!gpu_) return {};
  return device::gpu_speed(*gpu_->runtime, gpu_->assignment.device.ordinal);
}

std::string RunDevice::machine_text(int threads) const {
  if (!gpu_) return exec::machine_text(threads);
  return exec::gpu_machine_text(gpu_->assignment.device.name);
}

std::unique_ptr<exec::DeviceTier> RunDevice::make_tier(std::int64_t bytes) {
  if (!gpu_) return std::make_unique<exec::DeviceTier>(bytes, kind());
  return make_gpu_tier(bytes, "");
}

std::unique_ptr<exec::DeviceTier> RunDevice::make_measuring_tier(std::int64_t needed_bytes) {
  expect(gpu_ != nullptr, "a processor has no memory of its own");
  gpu_->drop_tier();
  const std::int64_t room =
      device::measuring_room(gpu_->free_bytes(), static_cast<int>(gpu_->assignment.sharing.size()),
                             needed_bytes + gpu_->workspace_bytes);
  return make_gpu_tier(std::max<std::int64_t>(0, room - gpu_->workspace_bytes),
                       "nodes that are measured");
}

std::unique_ptr<exec::DeviceTier> RunDevice::make_gpu_tier(std::int64_t bytes,
                                                           const std::string& purpose) {
  device::CudaDevice& cuda = *gpu_->cuda;
  gpu_->drop_tier();
  device::start_on_gpu([&] { cuda.reserve(Tier::Device, bytes + gpu_->workspace_bytes); }, purpose);
  gpu_->has_tier = true;
  gpu_->step_numbers =
      cuda.reserved(Tier::Device)->allocate(gpu_->step_number_bytes(), "numbers of the step");
  auto tier = std::make_unique<exec::DeviceTier>(cuda.reserved(Tier::Device), DeviceKind::Cuda);
  const exec::DeviceScope scope(*tier);
  gpu_->warm_up();
  const std::int64_t kept = tier->set_live_apart();
  expect(kept + gpu_->step_number_bytes() <= gpu_->workspace_bytes,
         fmt::format("libraries keep {} bytes on the device and kept {} before", kept,
                     gpu_->workspace_bytes));
  return tier;
}

}  // namespace garonne::train
