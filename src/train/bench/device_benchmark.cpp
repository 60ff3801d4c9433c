#include "train/bench/device_benchmark.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/free_space.hpp"
#include "train/bench/device_rates.hpp"
#include "train/setup/available_memory.hpp"
#include "train/setup/cluster.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {
namespace {

plan::Cluster cluster_of_links(const DeviceBenchmarkOptions& options,
                               const dist::Session& session) {
  if (options.links.empty()) {
    if (session.size() == 1) return {};
    throw ConfigError("--links", "",
                      fmt::format("is needed for several ranks: measure what is between them by "
                                  "`mpirun -n {} garonne bench links --output links.toml`, and "
                                  "give that file",
                                  session.size()));
  }
  plan::Cluster cluster = plan::load_cluster(options.links);
  const int here = session.ranks_on_node();
  if (here == 1 || here == cluster.devices_per_node) return cluster;
  throw ConfigError("--links", options.links,
                    fmt::format("has nodes of {} devices, and there are {} ranks here",
                                cluster.devices_per_node, here));
}

void measure_gpu(RunDevice& device, plan::Cluster& cluster) {
  const device::GpuFacts facts = device.gpu().value();
  cluster.device.kind = DeviceKind::Cuda;
  cluster.device.architecture = facts.architecture;
  cluster.device_name = facts.name;
  cluster.driver = facts.driver;
  cluster.memory_bytes = facts.memory_bytes;
  cluster.reserved_bytes =
      std::max<std::int64_t>(0, facts.memory_bytes - device.device().memory().free_bytes);
  const std::optional<device::GpuSpeed> speed = device.gpu_speed();
  if (!speed) return;
  cluster.copies.out = speed->bytes / speed->out_seconds;
  cluster.copies.in = speed->bytes / speed->in_seconds;
  // Both at once: each has what of its own time that leaves it.
  cluster.copies.out_with_in = cluster.copies.in_with_out = speed->bytes / speed->both_seconds;
}

}  // namespace

plan::Cluster run_device_benchmark(const DeviceBenchmarkOptions& options, const RunConfig& config,
                                   dist::Session& session) {
  plan::Cluster cluster;
  session.agree([&] { cluster = cluster_of_links(options, session); });
  RunDevice device(config, session);
  const ComputeSession compute(options.threads);
  device.use_kernels(session);
  const bool on_gpu = device.kind() == DeviceKind::Cuda;
  const std::string place = on_gpu ? "a GPU" : fmt::format("{} threads", options.threads);
  const std::string here = fmt::format("measured by `garonne bench device` on {}", place);
  cluster.source = options.links.empty() ? here : fmt::format("{}; {}", cluster.source, here);
  if (options.links.empty()) cluster.name = session.host();
  cluster.memory_bytes =
      session.all_reduce_min(std::vector{resolve_budget(RunConfig(), session.ranks_on_node())})[0];
  if (on_gpu) measure_gpu(device, cluster);
  const std::int64_t usual = on_gpu ? 8192 : 2048;
  const DeviceRates rates = measure_device_rates(
      session, device,
      {options.seconds_each, options.largest_side > 0 ? options.largest_side : usual});
  cluster.efficiency = 1;
  cluster.float32_flops = rates.float32_flops;
  cluster.bfloat16_flops = rates.bfloat16_flops;
  cluster.float64_flops = rates.float64_flops;
  cluster.products = rates.products;
  cluster.bytes_per_second = rates.bytes_per_second;
  cluster.least_seconds = rates.least_seconds;
  cluster.issue_seconds = rates.issue_seconds;
  if (options.links.empty()) {
    // The format wants links, of which one device has none: nothing is between its own bytes.
    cluster.inside_node = cluster.between_nodes = {0, rates.bytes_per_second};
  }
  const AvailableMemory host =
      available_memory(MemorySources::of_this_process(), session.ranks_on_node());
  cluster.host.memory_bytes = host.bytes * session.ranks_on_node();
  if (!on_gpu) cluster.host.bytes_per_second = rates.bytes_per_second * session.ranks_on_node();
  session.agree([&] {
    if (session.rank() != 0 || options.disk.empty()) return;
    cluster.disk = measure_disk_rates(options.disk);
    // As many bytes were there for a while.
    constexpr std::int64_t least = std::int64_t{256} << 20;
    cluster.disk.bytes = free_bytes_in(options.disk).value_or(least);
  });
  return cluster;
}

std::string format_device_benchmark(const plan::Cluster& cluster) {
  std::string text = fmt::format(
      "{}\n  {:.1f} GFLOP/s float32, {:.1f} bfloat16, {:.1f} float64; memory {}, {:.1f} GB/s\n"
      "  the smallest kernel {:.2f} µs, its issue {:.2f} µs\n",
      cluster.device_name.empty() ? cluster.name : cluster.device_name, cluster.float32_flops / 1e9,
      cluster.bfloat16_flops / 1e9, cluster.float64_flops / 1e9, format_bytes(cluster.memory_bytes),
      cluster.bytes_per_second / 1e9, 1e6 * cluster.least_seconds, 1e6 * cluster.issue_seconds);
  if (!cluster.products.points.empty())
    text += fmt::format("  {:>8} {:>8} {:>8} {:>10}\n", "rows", "columns", "depth", "of the best");
  for (const plan::ProductPoint& point : cluster.products.points) {
    text += fmt::format("  {:>8} {:>8} {:>8} {:>9.1f} %\n", point.size.rows, point.size.columns,
                        point.size.depth, 100 * point.efficiency);
  }
  if (!cluster.products.points.empty()) {
    text += fmt::format("  {:.1f} % of that where a size is no multiple of {}\n",
                        100 * cluster.products.unaligned, cluster.products.alignment);
  }
  if (cluster.copies.out > 0) {
    text += fmt::format(
        "copies  to the host {:.1f} GB/s, from it {:.1f}; both at once {:.1f} each\n",
        cluster.copies.out / 1e9, cluster.copies.in / 1e9, cluster.copies.out_with_in / 1e9);
  }
  if (cluster.disk.known()) {
    text += fmt::format("disk    writes {:.2f} GB/s, reads {:.2f}, after {:.0f} µs\n",
                        cluster.disk.write / 1e9, cluster.disk.read / 1e9,
                        1e6 * cluster.disk.latency_seconds);
  }
  return text;
}

}  // namespace garonne::train
