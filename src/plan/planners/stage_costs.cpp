#include "plan/planners/stage_costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/model/group_links.hpp"

namespace garonne::plan {

const std::vector<BlockCost>* PlannerProblem::blocks(int tensor, std::int64_t micro_batch) {
  const auto [found, is_new] = blocks_.try_emplace({tensor, micro_batch});
  if (is_new) {
    try {
      found->second = inputs_.blocks(tensor, false, micro_batch);
    } catch (const ConfigError&) {
      // None.
    }
  }
  return found->second ? &*found->second : nullptr;
}

StageCost stage_cost(const std::vector<BlockCost>& blocks, int first, int last) {
  StageCost cost;
  cost.input_bytes = blocks[as_index(first)].input_bytes;
  for (int b = first; b < last; ++b) {
    const BlockCost& block = blocks[as_index(b)];
    const BlockOption& most = block.options.front();
    const BlockOption& least = block.options.back();
    cost.forward += block.forward_seconds + block.forward_link_seconds;
    cost.backward += block.backward_seconds + block.weight_seconds + block.backward_link_seconds;
    cost.again += least.again_seconds;
    for (const BlockParameter& used : block.parameters) {
      if (used.earlier_block < first) cost.trained.add(used);
    }
    cost.kept_bytes += block.input_bytes + most.saved_bytes;
    cost.lean_bytes += block.input_bytes + least.saved_bytes;
    cost.working_bytes = std::max(cost.working_bytes, block.working_bytes);
    cost.remade_bytes = std::max(cost.remade_bytes, most.saved_bytes - least.saved_bytes);
  }
  return cost;
}

std::int64_t training_bytes(const StepShape& step, const TrainedSize& trained, int shards) {
  const ElementBytes& bytes = step.element_bytes;
  const std::int64_t shard = trained.elements / shards;
  std::int64_t held = trained.elements * (bytes.parameter + bytes.gradient) + shard * bytes.master;
  for (const StateSpec& state : step.optimizer_states)
    held += state.blocks.count(shard, trained.sides) * state.element_bytes(bytes.state);
  return held;
}

std::int64_t stage_bytes(const StepShape& step, const StageCost& cost, std::int64_t in_flight,
                         bool recomputes, int shards) {
  const std::int64_t activations =
      recomputes ? in_flight * cost.lean_bytes + cost.remade_bytes : in_flight * cost.kept_bytes;
  return training_bytes(step, cost.trained, shards) + cost.working_bytes + activations;
}

std::int64_t in_flight_1f1b(int stage, int stages, std::int64_t micro_batches) {
  return std::min<std::int64_t>(stages - stage, micro_batches);
}

std::vector<int> equal_firsts(const std::vector<BlockCost>& blocks, int stages) {
  std::vector<int> beginnings;
  for (int b = 0; b < static_cast<int>(blocks.size()); ++b) {
    if (b == 0 || blocks[as_index(b)].may_begin_part) beginnings.push_back(b);
  }
  const int groups = static_cast<int>(beginnings.size());
  if (groups < stages) return {};
  std::vector<int> firsts;
  for (int s = 0; s < stages; ++s) {
    const int before = s * (groups / stages) + std::min(s, groups % stages);
    firsts.push_back(beginnings[as_index(before)]);
  }
  firsts.push_back(static_cast<int>(blocks.size()));
  return firsts;
}

std::vector<StageCost> equal_stages(const std::vector<BlockCost>& blocks, int stages) {
  const std::vector<int> firsts = equal_firsts(blocks, stages);
  std::vector<StageCost> costs;
  for (std::size_t s = 0; s + 1 < firsts.size(); ++s)
    costs.push_back(stage_cost(blocks, firsts[s], firsts[s + 1]));
  return costs;
}

Link hop_link(const Cluster& cluster, const GridShape& shape) {
  const GridLinks links(cluster, Grid(shape));
  for (int stage = 0; stage + 1 < shape.pipeline; ++stage) {
    const GroupLink hop = links.stages(stage, stage + 1);
    if (hop.between_nodes) return hop.link;
  }
  return cluster.inside_node;
}

std::vector<std::int64_t> divisors_of(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t d = 1; d <= number; ++d) {
    if (number % d == 0) found.push_back(d);
  }
  return found;
}

std::vector<PlacedBlocks> placed_equally(const std::vector<BlockCost>& blocks,
                                         const GridShape& shape, bool recomputes) {
  const std::vector<int> firsts = equal_firsts(blocks, shape.pipeline);
  std::vector<PlacedBlocks> placed;
  for (std::size_t s = 0; s + 1 < firsts.size(); ++s)
    placed.push_back({firsts[s], firsts[s + 1], shape.data, shape.tensor, recomputes});
  return placed;
}

std::string words_of(const GridShape& shape, std::int64_t micro_batch, bool recomputes) {
  return fmt::format("{}, micro-batch {}, {}", to_string(shape), micro_batch,
                     recomputes ? "all run again" : "all kept");
}

std::string words_of(const std::vector<PlacedBlocks>& placed) {
  std::string text;
  for (const PlacedBlocks& run : placed) {
    if (!text.empty()) text += ", ";
    text += run.last - run.first == 1 ? fmt::format("{}", run.first)
                                      : fmt::format("{}-{}", run.first, run.last - 1);
    text += run.tensor > 1 ? fmt::format(" on {} × {}", run.data, run.tensor)
                           : fmt::format(" on {}", run.data);
    if (run.recomputes) text += " again";
  }
  return text;
}

void add_note(const std::string& text, NamedChoice& choice) {
  choice.note += (choice.note.empty() ? "" : "; ") + text;
}

NamedChoice nothing_fits() {
  NamedChoice choice;
  choice.words = "nothing";
  choice.note = "nothing fits by its own model";
  return choice;
}

void set_grid(const PlannerProblem& problem, const GridShape& shape, const std::string& schedule,
              int zero, std::int64_t micro_batch, NamedChoice& choice, int chunks) {
  for (const auto& candidate : grid_candidates(problem.inputs().limits, problem.inputs().cluster)) {
    if (candidate.shape == shape && candidate.micro_batch == micro_batch &&
        candidate.zero == zero && !candidate.sequence_parallel &&
        (shape.pipeline == 1 || (candidate.schedule == schedule && candidate.chunks == chunks))) {
      choice.grid = candidate;
      return;
    }
  }
  choice.grid.reset();
  add_note(
      fmt::format("Garonne has no grid {} with micro-batches of {}", to_string(shape), micro_batch),
      choice);
}

void set_nearest_grid(const PlannerProblem& problem, const std::string& schedule,
                      NamedChoice& choice) {
  std::map<int, int> devices_of_tensor;
  int devices = 0;
  bool equal = true;
  for (const PlacedBlocks& run : choice.placed) {
    devices_of_tensor[run.tensor] += run.data * run.tensor;
    devices += run.data * run.tensor;
    equal = equal && run.data == choice.placed.front().data &&
            run.tensor == choice.placed.front().tensor;
  }
  int tensor = 1;
  for (const auto& [size, number] : devices_of_tensor) {
    const auto best = devices_of_tensor.find(tensor);
    if (best == devices_of_tensor.end() || number > best->second) tensor = size;
  }
  if (problem.ranks() % tensor != 0) {
    add_note(fmt::format("{} tensor ranks do not divide {} ranks", tensor, problem.ranks()),
             choice);
    return;
  }
  GridShape shape;
  shape.tensor = tensor;
  for (int stages = static_cast<int>(choice.placed.size()); stages > 0; --stages) {
    if (problem.ranks() / tensor % stages != 0) continue;
    const int data = problem.ranks() / tensor / stages;
    if (problem.global_batch() % data != 0) continue;
    shape.pipeline = stages;
    shape.data = data;
    std::int64_t micro_batch = 1;
    for (const std::int64_t d : divisors_of(problem.global_batch() / data)) {
      if (d <= choice.micro_batch) micro_batch = d;
    }
    if (!equal || devices != problem.ranks() || stages != static_cast<int>(choice.placed.size())) {
      add_note(fmt::format("{} are laid out as {}",
                           equal ? "these stages" : "stages of different widths", to_string(shape)),
               choice);
    }
    if (micro_batch != choice.micro_batch)
      add_note(fmt::format("with micro-batches of {}", micro_batch), choice);
    set_grid(problem, shape, schedule, 0, micro_batch, choice);
    return;
  }
  add_note(fmt::format("no number of data ranks that is left divides a batch of {}",
                       problem.global_batch()),
           choice);
}

}  // namespace garonne::plan
