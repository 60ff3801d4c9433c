#include "plan/stage/stage_chain.hpp"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/stage/block_options.hpp"
#include "plan/stage/option_cache.hpp"

namespace garonne::plan {
namespace {

struct Cut {
  int position;  // before this node
  int value;     // the one that crosses
};

// Positions that exactly one value crosses. One without a gradient is no place between two
// backwards: what makes it belongs to the block that reads it.
std::vector<Cut> find_cuts(const ModelGraph& model) {
  const int nodes = static_cast<int>(model.nodes.size());
  std::vector<int> made_by(model.values.size(), -1);
  std::vector<int> last_reader(model.values.size(), -1);
  for (int n = 0; n < nodes; ++n) {
    made_by[as_index(model.nodes[as_index(n)].output)] = n;
    for (const int input : model.nodes[as_index(n)].inputs) last_reader[as_index(input)] = n;
  }
  std::vector<Cut> cuts;
  std::set<int> crossing;
  for (int n = 0; n + 1 < nodes; ++n) {
    crossing.insert(model.nodes[as_index(n)].output);
    for (auto value = crossing.begin(); value != crossing.end();) {
      value = last_reader[as_index(*value)] <= n ? crossing.erase(value) : std::next(value);
    }
    const bool alone = crossing.size() == 1;
    if (alone && model.values[as_index(*crossing.begin())].differentiable)
      cuts.push_back({n + 1, *crossing.begin()});
  }
  return cuts;
}

// Equal for blocks that cost and connect the same.
std::string signature(const TaskGraph& tasks, int begin, int end) {
  std::map<int, int> number;
  std::string text;
  const auto add = [&](int value) {
    const auto [entry, fresh] = number.emplace(value, static_cast<int>(number.size()));
    text += fmt::format("{}", entry->second);
    if (fresh) text += fmt::format(":{}", tasks.graph.values[as_index(value)].bytes);
    text += ' ';
  };
  const auto add_task = [&](int t) {
    const Task& task = tasks.graph.tasks[as_index(t)];
    for (const auto& option : task.options) {
      text += fmt::format("{} {} > ", option.seconds, option.transient_bytes);
      for (const int value : option.makes) add(value);
      if (option.reads.empty()) continue;
      text += "| ";
      for (const int value : option.reads) add(value);
    }
    text += "< ";
    for (const int value : task.reads) add(value);
    text += "~ ";
    for (const int value : task.updates) add(value);
  };
  for (int n = begin; n < end; ++n) {
    add_task(n);
    // Fates name a way by its number.
    const std::vector<int>& ways = tasks.keep_options[as_index(n)];
    for (std::size_t w = 1; w < ways.size(); ++w) text += fmt::format("={} ", ways[w]);
  }
  for (std::size_t t = as_index(tasks.nodes); t < tasks.step_of_task.size(); ++t) {
    const int node = tasks.step_of_task[t].node;
    if (node >= begin && node < end) add_task(static_cast<int>(t));
  }
  return text;
}

}  // namespace

std::optional<StageChain> make_stage_chain(const ModelGraph& model, const TaskGraph& tasks,
                                           TextCache* cache) {
  const std::vector<Cut> cuts = find_cuts(model);
  if (cuts.empty()) return std::nullopt;
  StageChain stage;
  bool first_input = true;
  for (const auto& value : model.values) {
    if (!value.loaded) continue;
    (first_input ? stage.chain.input_bytes : stage.resident_bytes) += value.bytes;
    first_input = false;
  }
  std::map<std::string, BlockOptions> solved;
  int begin = 0;
  int input = -1;
  for (std::size_t k = 0; k <= cuts.size(); ++k) {
    const bool last = k == cuts.size();
    const int end = last ? static_cast<int>(model.nodes.size()) : cuts[k].position;
    const int output = last ? model.nodes.back().output : cuts[k].value;
    const std::string key = signature(tasks, begin, end);
    auto known = solved.find(key);
    if (known == solved.end()) {
      std::optional<BlockOptions> options = load_options(
          cache, key, {tasks.keep_options.begin() + begin, tasks.keep_options.begin() + end});
      if (!options) {
        options = make_block_options(model, tasks, begin, end, input, output);
        store_options(cache, key, *options);
      }
      known = solved.emplace(key, std::move(*options)).first;
    }
    stage.chain.blocks.push_back(known->second.block);
    stage.chain.blocks.back().name = model.nodes[as_index(begin)].name;
    stage.fates.push_back(known->second.fates);
    stage.nodes.emplace_back(begin, end);
    stage.value.push_back(input);
    begin = end;
    input = output;
  }
  stage.value.push_back(input);
  return stage;
}

NodeSchedule expand(const ModelGraph& model, const StageChain& stage,
                    const std::vector<ChainOperation>& operations) {
  ScheduleWriter writer(model);
  std::vector<bool> saved(stage.nodes.size(), false);
  const auto run_forward = [&](int block) {
    for (int n = stage.nodes[as_index(block)].first; n < stage.nodes[as_index(block)].second; ++n) {
      writer.forward(n);
    }
  };
  // Without fates all is made again.
  const auto decide = [&](int block, const std::vector<RecordFate>* fates) {
    const auto [begin, end] = stage.nodes[as_index(block)];
    for (int n = begin; n < end; ++n) {
      const RecordFate fate =
          fates == nullptr ? RecordFate{Fate::Recompute} : (*fates)[as_index(n - begin)];
      writer.decide_record(n, fate);
      const int output = model.nodes[as_index(n)].output;
      if (output != stage.value[as_index(block + 1)]) writer.decide_value(output, fate.fate);
    }
  };
  const auto forget_plain = [&](int value) {
    const bool inside = value > 0 && saved[as_index(value - 1)];
    if (stage.value[as_index(value)] >= 0 && !inside)
      writer.forget_value(stage.value[as_index(value)]);
  };
  for (const auto& operation : operations) {
    const int block = operation.block;
    switch (operation.kind) {
      case ChainOperationKind::ForwardDiscard:
        run_forward(block);
        decide(block, nullptr);
        forget_plain(block);
        break;
      case ChainOperationKind::ForwardCheckpoint:
        run_forward(block);
        decide(block, nullptr);
        break;
      case ChainOperationKind::ForwardKeep:
        run_forward(block);
        decide(block, &stage.fates[as_index(block)][as_index(operation.option)]);
        saved[as_index(block)] = true;
        break;
      case ChainOperationKind::Drop:
        forget_plain(block);
        break;
      case ChainOperationKind::Backward:
        for (int n = stage.nodes[as_index(block)].second - 1;
             n >= stage.nodes[as_index(block)].first; --n) {
          writer.backward(n);
        }
        saved[as_index(block)] = false;
        forget_plain(block);
        break;
      default:
        throw InternalError("nodes do not copy: what is moved is said beside their schedule");
    }
  }
  return writer.take();
}

}  // namespace garonne::plan
