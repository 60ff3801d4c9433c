#include "train/plans/cluster_costs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/precision.hpp"
#include "device/cuda_budget.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/pipeline_schedule.hpp"

namespace garonne::train {
namespace {

// That the model is cut into.
int parts_of(const plan::PipelineSchedule& schedule) {
  return static_cast<int>(
      plan::pipeline_routes(schedule.placement, schedule.devices, schedule.chunks).front().size());
}

// What is given is within it, too. Processors of a node share its memory: where ranks are fewer,
// each may have more.
void check_budget(std::int64_t budget, const plan::Cluster& cluster) {
  const bool shared = !cluster.device.is_gpu();
  const std::int64_t most =
      (cluster.memory_bytes - cluster.reserved_bytes) * (shared ? cluster.devices_per_node : 1);
  if (budget <= most) return;
  throw ConfigError(
      "memory.budget", format_bytes(budget),
      fmt::format("is more than a {} of {} has for it: {}, {}device.memory{}",
                  shared ? "node" : "device", cluster.name, format_bytes(most),
                  shared ? fmt::format("{} times ", cluster.devices_per_node) : "",
                  cluster.reserved_bytes > 0 ? fmt::format(" less the {} of device.reserved",
                                                           format_bytes(cluster.reserved_bytes))
                                             : ""));
}

}  // namespace

plan::Cluster this_machine(const RunConfig& config, const plan::CostTable& costs, int ranks,
                           int ranks_on_node) {
  plan::Cluster cluster;
  cluster.name = "this machine";
  cluster.source = costs.rows.empty() ? "round numbers" : "measured nodes, round numbers for links";
  cluster.devices_per_node = ranks_on_node;
  cluster.nodes = (ranks + ranks_on_node - 1) / ranks_on_node;
  cluster.memory_bytes = resolve_budget(config, ranks_on_node);
  const plan::NominalRates rates;
  cluster.float32_flops = cluster.float64_flops = cluster.bfloat16_flops =
      costs.product_roof > 0 ? costs.product_roof : rates.operations_per_second;
  cluster.tfloat32_flops = cluster.float32_flops;
  cluster.bytes_per_second = rates.bytes_per_second;
  return cluster;
}

std::string describe_efficiency(const plan::Cluster& cluster) {
  if (!cluster.products.points.empty()) return "";
  return fmt::format("; the cluster file has one efficiency, {:g}, for products of all sizes",
                     cluster.efficiency);
}

std::string note_of_processor(const RunConfig& config, const plan::Cluster& cluster) {
  constexpr double no_processors = 1e12;  // bytes a second
  const bool is_one = config.run.device == "cuda" || cluster.bytes_per_second >= no_processors;
  if (cluster.device.is_gpu() || !is_one) return "";
  return fmt::format(
      "note: the file of {} has no device.kind = \"cuda\" (version 2 of cluster files): workspaces "
      "of\n  libraries, launches and what contexts and NCCL take of a GPU's memory are not "
      "counted\n",
      cluster.name);
}

std::string source_of(const plan::Cluster& cluster) {
  return cluster.source.empty() ? "the figures of " + cluster.name : cluster.source;
}

bool apply_cluster(const plan::Cluster& cluster, const plan::CostTable& costs, Setup& whole) {
  const Precision precision = whole.declaration.precision;
  plan::ModelGraph& graph = whole.model.graph;
  plan::estimate_seconds(plan::rates_of(cluster, precision, whole.declaration.products), graph);
  const plan::GridLinks links(cluster, whole.grid);
  plan::set_collective_seconds(whole.grid.shape().tensor, links.tensor(), graph);
  if (cluster.software.waits_for_operations) plan::wait_for_operations(graph);
  whole.step.kernels = {cluster.least_seconds, cluster.issue_seconds,
                        cluster.host.communication_seconds_per_byte};
  // Blocks have all that the host takes.
  if (cluster.software.block_issue_seconds > 0) whole.step.kernels.issue = 0;
  whole.ranks_on_node = std::min(cluster.devices_per_node, whole.grid.ranks());
  set_disk_rates(cluster.disk.known() ? cluster.disk : nominal_disk, whole);
  set_copy_rates(cluster.copies.out > 0 ? cluster.copies : nominal_copies, whole);
  use_host_of(cluster, whole);
  const bool measured = apply_costs(costs, whole);
  if (!cluster.software.balances_stages && whole.grid.shape().pipeline > 1) {
    whole.cut_by = std::make_shared<const plan::ModelGraph>(plan::with_equal_blocks(
        graph, cluster.software.counts_ends, parts_of(pipeline_schedule_of(whole))));
  }
  // Of an element: what the update reads and writes.
  plan::StepShape& step = whole.step;
  const plan::ElementBytes& bytes = step.element_bytes;
  double states = 0;
  for (const StateSpec& state : step.optimizer_states) {
    states += static_cast<double>(state.bytes(state.blocks.elements, bytes.state)) /
              static_cast<double>(state.blocks.elements);
  }
  const double updated =
      static_cast<double>(bytes.gradient + 2 * bytes.master) + 2 * states +
      static_cast<double>(bytes.master > 0 ? bytes.parameter : 2 * bytes.parameter);
  if (step.update_seconds_per_element <= 0)
    step.update_seconds_per_element = updated / cluster.bytes_per_second;
  // What is summed of whole parameters is read once before, in each round.
  if (step.sums_seconds_per_element <= 0 && !step.tensor_sums.empty()) {
    const std::int64_t trained = bytes.master > 0 ? bytes.master : bytes.parameter;
    step.sums_seconds_per_element =
        (static_cast<double>(bytes.gradient + trained) + states) / cluster.bytes_per_second;
  }
  if (step.norm_seconds_per_element <= 0) {
    step.norm_seconds_per_element = static_cast<double>(bytes.gradient) / cluster.bytes_per_second;
  }
  step.links = links.of_stage(0, {});
  step.passes_in_turn = !cluster.software.overlaps_collectives;
  return measured;
}

plan::Overlap overlap_of(const plan::Cluster* cluster) {
  if (cluster == nullptr) return {};
  const plan::Software& software = cluster->software;
  return {software.host_waits ? plan::HostIssue::Waits : plan::HostIssue::Ahead,
          software.overlaps_reductions, software.overlaps_collectives, software.overlaps_copies};
}

void set_links(const plan::GridLinks& links, int stage, Setup& setup) {
  std::vector<int> tied;
  for (const int rank : setup.step.pipeline.tied_group)
    tied.push_back(setup.grid.coordinates_of(rank).pipeline);
  setup.step.links = links.of_stage(stage, tied);
}

std::int64_t budget_on_cluster(const RunConfig& config, const plan::Cluster& cluster) {
  if (config.memory.budget != RunConfig::automatic_budget) {
    check_budget(config.memory.budget, cluster);
    return config.memory.budget;
  }
  if (!cluster.device.is_gpu()) return cluster.memory_bytes;
  return device::automatic_gpu_budget(cluster.memory_bytes - cluster.reserved_bytes, 1);
}

}  // namespace garonne::train
