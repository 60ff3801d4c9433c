#include "plan_target.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "exec/profile/cached_costs.hpp"
#include "train/setup/cluster.hpp"
#include "train/setup/run_device.hpp"
#include "train/workload/described_fields.hpp"

namespace garonne::apps {
namespace {

void check_size(const plan::Cluster& cluster, std::int64_t ranks, std::int64_t on_node) {
  if (ranks <= on_node * cluster.nodes) return;
  throw ConfigError("--ranks", fmt::format("{}", ranks),
                    fmt::format("are more than the {} of {} ({} of {})",
                                counted(on_node * cluster.nodes, "device"), cluster.name,
                                counted(cluster.nodes, "node"), on_node));
}

train::DataFacts facts_of(const RunConfig& config, const TargetOptions& options) {
  if (options.fields) {
    const std::string option = "--fields";
    const auto fields = train::DescribedFields::parse(option, *options.fields);
    return train::facts_of_described(config, fields, option);
  }
  return train::facts_of_data_or_advice(config, "--fields");
}

}  // namespace

std::int64_t ranks_of(const RunConfig& config) {
  return config.grid.data * config.grid.pipeline * config.grid.tensor;
}

Target target_of(const RunConfig& config, const TargetOptions& options) {
  Target target;
  target.ranks = options.ranks > 0 ? options.ranks : ranks_of(config);
  if (!options.cluster.empty()) {
    target.cluster = plan::load_cluster(options.cluster);
    // Of a cluster every rank has a device for itself, so that "auto" is NCCL on GPUs.
    target.cluster->two_level_collectives =
        config.grid.transport != "mpi" && train::device_facts(config, *target.cluster).is_gpu();
  }
  const std::int64_t on_node = options.devices_per_node > 0 ? options.devices_per_node
                               : target.cluster             ? target.cluster->devices_per_node
                                                            : target.ranks;
  if (target.cluster) {
    check_size(*target.cluster, target.ranks, static_cast<int>(on_node));
    target.cluster->devices_per_node = static_cast<int>(on_node);
  }
  target.ranks_on_node = std::min(target.ranks, on_node);
  target.facts = facts_of(config, options);
  target.threads = train::threads_of_rank(config, static_cast<int>(target.ranks_on_node));
  // What was measured here says nothing about another machine's devices.
  // Tables of GPUs are kept by their names, and none is asked for its own here.
  const bool like_here =
      !target.cluster || (target.cluster->profiled_here && !target.cluster->device.is_gpu());
  const auto warn = [](const std::string& text) { fmt::print(stderr, "warning: {}\n", text); };
  if (like_here && train::device_kind(config) != DeviceKind::Cuda)
    target.costs = exec::load_cached_costs(target.threads, warn);
  return target;
}

}  // namespace garonne::apps
