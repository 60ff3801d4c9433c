#include "train/setup/cluster.hpp"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <set>
#include <string>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/progress.hpp"
#include "device/cpu_device.hpp"
#include "device/cuda_budget.hpp"
#include "device/disk_probe.hpp"
#include "dist/sum_order.hpp"
#include "dist/transports.hpp"
#include "exec/profile/cached_costs.hpp"
#include "exec/profile/profile.hpp"
#include "exec/profile/profile_bytes.hpp"
#include "nn/gemm/product.hpp"
#include "optim/optimizer.hpp"
#include "plan/model/step_costs.hpp"
#include "train/plans/layout_check.hpp"
#include "train/setup/communicators.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/rank_agreement.hpp"
#include "train/setup/staged_messages.hpp"

namespace garonne::train {

Cores Cores::of_this_process() {
  Cores cores;
  cores.of_node = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  cpu_set_t bound;
  CPU_ZERO(&bound);
  cores.allowed =
      sched_getaffinity(0, sizeof(bound), &bound) == 0 ? CPU_COUNT(&bound) : cores.of_node;
  return cores;
}

int threads_of_rank(const RunConfig& config, int ranks_on_node, const Cores& cores) {
  if (config.run.threads > 0) return static_cast<int>(config.run.threads);
  return std::max(1, std::min(cores.allowed, cores.of_node / std::max(1, ranks_on_node)));
}

ComputeSession::ComputeSession(int threads) : kernels_(threads) {
  at::set_num_threads(threads);
}

void check_grid(const RunConfig& config, int ranks) {
  const std::int64_t wanted = config.grid.data * config.grid.pipeline * config.grid.tensor;
  if (wanted != ranks) {
    const std::int64_t others = config.grid.pipeline * config.grid.tensor;
    throw ConfigError(
        "grid", "",
        fmt::format("data {} × pipeline {} × tensor {} wants {}, and this start has {}; use "
                    "`mpirun -n {}`{}",
                    config.grid.data, config.grid.pipeline, config.grid.tensor,
                    counted(wanted, "rank"), ranks, wanted,
                    ranks % others == 0 ? fmt::format(" or set --grid.data {}", ranks / others)
                                        : std::string()));
  }
  check_zero(config);
  check_transport(config);
  if (config.grid.transport == "nccl" && device_kind(config) != DeviceKind::Cuda) {
    throw ConfigError("grid.transport", "nccl",
                      fmt::format("carries what lies on GPUs; with run.device = \"{}\" use \"mpi\"",
                                  config.run.device));
  }
}

void check_transport(const RunConfig& config) {
  if (config.grid.transport == "nccl") dist::expect_nccl_built();
}

Axes::Axes(const Setup& setup, const plan::Program& program, RunDevice& device,
           dist::Session& session) {
  const RunConfig& config = setup.config;
  const Grid& grid = setup.grid;
  narrow_gradients_ = setup.step.gradient_wire.has_value();
  if (grid.ranks() == 1) return;
  const std::string name = device.transport(config);
  if (name == "mpi" && device.side() != nullptr) device.pin_messages(staged_bytes(program));
  const std::int64_t free_before = name == "nccl" ? device.device().memory().free_bytes : 0;
  thread_ = std::make_unique<dist::CommunicationThread>(session);
  const auto over = [&](const char* group, std::vector<int> members,
                        dist::TransportOptions options = {}) {
    options.name = group;
    options.limit_seconds = static_cast<double>(config.run.timeout);
    options.side = device.side();
    return members.size() == 1
               ? nullptr
               : dist::make_transport(name, session, *thread_, std::move(members), options);
  };
  const plan::PipelinePlace& place = setup.step.pipeline;
  dist::TransportOptions messages;
  messages.lanes = place.lane_numbers;
  for (const auto& lane : place.lanes)
    messages.message_lanes.push_back({lane.from, lane.to, lane.number});
  // One order on all ranks.
  data_ = over("data", grid.group(Axis::Data, session.rank()));
  tensor_ = over("tensor", grid.group(Axis::Tensor, session.rank()));
  pipeline_ = over("pipeline", grid.group(Axis::Pipeline, session.rank()), messages);
  if (const auto tied = tied_members(setup, session.rank()); !tied.empty())
    tied_ = over("tied", tied);
  std::vector<int> everybody(static_cast<std::size_t>(grid.ranks()));
  std::iota(everybody.begin(), everybody.end(), 0);
  dist::TransportOptions numbers;
  numbers.name = "world";
  numbers.limit_seconds = static_cast<double>(config.run.timeout);
  numbers.side = device.side();
  world_ = dist::make_number_transport(name, session, *thread_, std::move(everybody), numbers);
  // Of what evaluates alone the tier is there already.
  if (name != "nccl" || program.pieces.empty()) return;
  session.agree([&] {
    const std::int64_t free = device.device().memory().free_bytes;
    expect_room_beside_nccl({.wanted_bytes = device::tier_bytes_of_budget(program.budget_bytes()),
                             .free_bytes = free,
                             .taken_bytes = std::max<std::int64_t>(0, free_before - free),
                             .left_for_bytes = communicator_bytes(config)});
  });
}

std::string Axes::data_sums() const {
  if (!data_) return "";
  const dist::SumOrder order = data_->sum_order();
  if (narrow_gradients_) return describe(order) + ", of gradients in bfloat16";
  return order.two_levels() ? describe(order) : "";
}

namespace {

// Whether anybody reads it or not.
void say(const std::string& text) {
  std::fputs((text + "\n").c_str(), stderr);
}

void warn(const std::string& text) {
  say("warning: " + text);
}

constexpr double warm_up_seconds = 1;

// Adds what `table` lacks, with a progress bar.
void measure(const Setup& setup, RunDevice& device, plan::CostTable& table) {
  std::unique_ptr<Progress> progress;
  const auto advance = [&](int done, int all) {
    if (!progress) {
      progress = std::make_unique<Progress>("profile", all);
      if (!progress->visible())
        say(fmt::format("profile: measuring {} nodes, once for this machine and model", all));
    }
    progress->advance_to(done);
  };
  // On the processor, but where the run computes on a GPU.
  const device::CpuDevice processor;
  const bool on_gpu = device.kind() == DeviceKind::Cuda;
  const std::unique_ptr<optim::Optimizer> optimizer = optim::make_optimizer(setup.config);
  std::unique_ptr<exec::DeviceTier> tier;
  exec::MeasuredGpu gpu;
  if (on_gpu) {
    tier =
        device.make_measuring_tier(exec::profile_bytes(setup.model, setup.declaration, *optimizer));
    gpu = {&device.device(), tier.get(), device.staging(), warm_up_seconds};
  }
  const exec::MeasuredGpu* const where = on_gpu ? &gpu : nullptr;
  const Queue queue = on_gpu ? device.compute() : processor.queue(Lane::Compute);
  const std::size_t rows = table.rows.size();
  exec::profile_model(queue, setup.model, setup.declaration, table, advance, where);
  if (table.rows.size() > rows) gpu.warm_up_seconds = 0;  // it has warmed up
  exec::profile_step(queue, *optimizer, setup.config.optimizer.name, setup.declaration.precision,
                     table, where);
}

void measure_disk(const Setup& setup, plan::CostTable& table) {
  if (!setup.below.tiers.contains(Tier::Disk)) return;
  const std::string& folder = setup.config.memory.disk;
  plan::DiskRates& rates = table.disks[disk_of(folder)];
  if (!rates.known()) rates = measure_disk_rates(folder);
}

void save(const plan::CostTable& table) {
  if (exec::save_cached_costs(table)) return;
  fmt::print("note: the profile could not be cached in {}\n", exec::cost_table_path(table.machine));
}

}  // namespace

plan::DiskRates measure_disk_rates(const std::string& folder) {
  constexpr std::int64_t file_bytes = std::int64_t{256} << 20;
  constexpr double seconds = 3;
  const device::CpuDevice processor;
  const Queue queue = processor.queue(Lane::Compute);
  const device::DiskSpeed speed =
      device::probe_disk(folder, file_bytes, seconds, [&] { exec::compute_a_while(queue); });
  if (!speed.direct) {
    warn(fmt::format(
        "{} is on a file system that reads and writes through the page cache: it is asked "
        "to drop what is there at once, which takes time and, if it does not, memory "
        "that no budget counts",
        folder));
  }
  return {.latency_seconds = speed.latency_seconds, .write = speed.write, .read = speed.read};
}

plan::CostTable obtain_costs(const Setup& setup, int threads, const nlohmann::json& choices,
                             RunDevice& device, dist::Session& session) {
  std::string text;
  if (session.rank() == 0) {
    plan::CostTable table = exec::load_cached_costs(device.machine_text(threads), warn);
    const auto before = plan::to_json(table);
    measure(setup, device, table);
    measure_disk(setup, table);
    if (plan::to_json(table) != before) save(table);
    table.products.update(nn::choices_for(device.kind(), choices));
    text = plan::to_json(table).dump();
  }
  text = session.broadcast(text);
  plan::CostTable table =
      plan::cost_table_from_json(nlohmann::json::parse(text), "the profile of rank 0");
  // Rank 0 chose among the libraries that it has.
  dist::agree_on(session, [&] { return product_facts(table.products); });
  return table;
}

plan::CostTable costs_of_setup(const Setup& setup, plan::CostTable costs) {
  const std::string& precision = setup.config.train.precision;
  const std::string& optimizer = setup.config.optimizer.name;
  std::set<std::string> read = {plan::step_cost_key("norm", precision),
                                plan::step_cost_key(optimizer, precision),
                                plan::step_cost_key(plan::sums_of(optimizer), precision)};
  for (const plan::NodeSpec& node : setup.model.graph.nodes) {
    for (int k = 0; k < node.keep_options(); ++k) read.insert(plan::cost_key_of(node, k));
  }
  std::erase_if(costs.rows, [&](const auto& row) { return !read.contains(row.first); });
  return costs;
}

plan::CostTable measure_costs_again(const Setup& setup, int threads, RunDevice& device) {
  plan::CostTable table = exec::load_cached_costs(device.machine_text(threads), warn);
  plan::CostTable again;
  again.machine = table.machine;
  // Other libraries would be other bits.
  again.products = table.products;
  measure(setup, device, again);
  measure_disk(setup, again);
  table.products = again.products;
  plan::merge_shorter(again, table);
  save(table);
  return table;
}

}  // namespace garonne::train
