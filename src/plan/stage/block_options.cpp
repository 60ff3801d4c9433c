#include "plan/stage/block_options.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/error.hpp"
#include "plan/graph/liveness.hpp"

namespace garonne::plan {
namespace {

std::size_t index(int id) {
  return static_cast<std::size_t>(id);
}

// Beyond so many nodes worth keeping, all subsets are too many.
constexpr std::size_t exhaustive_nodes = 10;
constexpr std::size_t most_options = 24;

class BlockSolver {
 public:
  BlockSolver(const ModelGraph& model, const TaskGraph& tasks, int begin, int end, int input,
              int output)
      : model_(model),
        tasks_(tasks),
        begin_(begin),
        end_(end),
        input_(input),
        output_(output),
        counted_(tasks.graph.values.size(), false),
        wanted_at_end_(tasks.graph.values.size(), false) {
    find_values();
  }

  BlockOptions solve() {
    BlockOptions result;
    ChainBlock& block = result.block;
    block.output_bytes = model_.values[index(output_)].bytes;
    block.gradient_bytes = gradient_bytes_;
    block.forward = plain_forward();
    std::vector<std::pair<ChainOption, std::vector<bool>>> found;
    for (const auto& kept : choices()) found.emplace_back(option_of(kept), kept);
    for (const auto& [option, kept] : thinned(undominated(std::move(found)))) {
      block.options.push_back(option);
      result.kept.push_back(kept);
    }
    return result;
  }

 private:
  bool inside(int node) const { return node >= begin_ && node < end_; }

  // Counted is what the block makes; what others read of it outlives it.
  void find_values() {
    const auto& all = tasks_.graph.tasks;
    for (std::size_t t = 0; t < all.size(); ++t) {
      if (inside(tasks_.step_of_task[t].node)) {
        for (const int value : all[t].options[0].makes) {
          counted_[index(value)] = tasks_.model_value[index(value)] != output_ || output_ < 0;
          if (tasks_.graph.values[index(value)].live_at_end) {
            wanted_at_end_[index(value)] = true;
            gradient_bytes_ += tasks_.graph.values[index(value)].bytes;
          }
        }
        continue;
      }
      for (const auto* list : {&all[t].reads, &all[t].updates}) {
        for (const int value : *list) wanted_at_end_[index(value)] = true;
      }
    }
    for (std::size_t v = 0; v < counted_.size(); ++v) {
      wanted_at_end_[v] = wanted_at_end_[v] && counted_[v];
    }
  }

  bool pinned_inside(int value) const {
    for (int n = begin_; n < end_; ++n) {
      const auto& pinned = model_.nodes[index(n)].pinned_values;
      if (std::find(pinned.begin(), pinned.end(), value) != pinned.end()) return true;
    }
    return false;
  }

  // Nodes of which something is read again by a backward of the block.
  std::vector<int> worth_keeping() const {
    std::vector<int> nodes;
    for (int n = begin_; n < end_; ++n) {
      const NodeSpec& node = model_.nodes[index(n)];
      const bool value = node.output != output_ && pinned_inside(node.output);
      if (value || !node.private_slot_bytes.empty()) nodes.push_back(n);
    }
    return nodes;
  }

  std::vector<std::vector<bool>> choices() const {
    const std::vector<int> nodes = worth_keeping();
    const std::vector<bool> all(index(end_ - begin_), true);
    std::vector<std::vector<bool>> result = {all};
    if (nodes.size() <= exhaustive_nodes) {
      for (unsigned bits = 0; bits + 1 < 1U << nodes.size(); ++bits) {
        std::vector<bool> kept = all;
        for (std::size_t k = 0; k < nodes.size(); ++k) {
          kept[index(nodes[k] - begin_)] = (bits >> k & 1U) != 0;
        }
        result.push_back(std::move(kept));
      }
      return result;
    }
    add_greedy_choices(nodes, all, result);
    return result;
  }

  // From keeping all to keeping nothing, each time dropping the node that saves most bytes for the
  // seconds that it adds.
  void add_greedy_choices(const std::vector<int>& nodes, std::vector<bool> kept,
                          std::vector<std::vector<bool>>& result) const {
    ChainOption now = option_of(kept);
    std::set<int> left(nodes.begin(), nodes.end());
    while (!left.empty()) {
      int best = -1;
      double best_price = 0;
      for (const int n : left) {
        kept[index(n - begin_)] = false;
        const ChainOption without = option_of(kept);
        kept[index(n - begin_)] = true;
        const double price =
            (without.backward.seconds - now.backward.seconds + 1e-12) /
            static_cast<double>(std::max<std::int64_t>(now.saved_bytes - without.saved_bytes, 1));
        if (best >= 0 && price >= best_price) continue;
        best = n;
        best_price = price;
      }
      left.erase(best);
      kept[index(best - begin_)] = false;
      now = option_of(kept);
      result.push_back(kept);
    }
  }

  LivenessTrace trace(const NodeSchedule& schedule, bool to_the_end) const {
    return trace_liveness(tasks_.graph, to_task_schedule(tasks_, schedule), counted_,
                          to_the_end ? wanted_at_end_ : std::vector<bool>(counted_.size(), false));
  }

  // The peak over the forward, with the output from the moment on when it is made.
  std::int64_t forward_peak(const NodeSchedule& schedule, const LivenessTrace& traced) const {
    std::int64_t output = 0;
    std::int64_t peak = 0;
    for (int step = 0; step < end_ - begin_; ++step) {
      const NodeSpec& node = model_.nodes[index(schedule[index(step)].node)];
      if (node.output == output_) output = model_.values[index(output_)].bytes;
      peak = std::max(peak, traced.during_bytes[index(step)] + output);
    }
    return peak;
  }

  PassCost plain_forward() const {
    NodeSchedule schedule;
    for (int n = begin_; n < end_; ++n) schedule.push_back({n, Pass::Forward, false});
    const LivenessTrace traced = trace(schedule, false);
    const std::int64_t output = model_.values[index(output_)].bytes;
    return {traced.seconds, std::max<std::int64_t>(0, forward_peak(schedule, traced) - output)};
  }

  ChainOption option_of(const std::vector<bool>& kept) const {
    ScheduleWriter writer(model_);
    if (input_ >= 0) writer.assume_value(input_);
    for (int n = begin_; n < end_; ++n) writer.forward(n);
    for (int n = begin_; n < end_; ++n) {
      if (kept[index(n - begin_)]) continue;
      writer.forget_record(n);
      if (model_.nodes[index(n)].output != output_) {
        writer.forget_value(model_.nodes[index(n)].output);
      }
    }
    for (int n = end_ - 1; n >= begin_; --n) writer.backward(n);
    const NodeSchedule schedule = writer.take();
    const LivenessTrace traced = trace(schedule, true);

    const std::size_t forwards = index(end_ - begin_);
    const std::int64_t inner = traced.live_bytes[forwards - 1];
    const std::int64_t input = input_ >= 0 ? model_.values[index(input_)].bytes : 0;
    ChainOption option;
    option.saved_bytes = inner + model_.values[index(output_)].bytes;
    option.forward.transient_bytes =
        std::max<std::int64_t>(0, forward_peak(schedule, traced) - option.saved_bytes);
    for (std::size_t step = 0; step < forwards; ++step) {
      const NodeSpec& node = model_.nodes[index(schedule[step].node)];
      option.forward.seconds +=
          schedule[step].keep ? node.forward_keep.seconds : node.forward.seconds;
    }
    option.backward.seconds = traced.seconds - option.forward.seconds;
    std::int64_t peak = 0;
    for (std::size_t step = forwards; step < schedule.size(); ++step) {
      peak = std::max(peak, traced.during_bytes[step]);
    }
    option.backward.transient_bytes =
        std::max<std::int64_t>(0, peak - inner - input - gradient_bytes_);
    option.name = name_of(kept);
    return option;
  }

  std::string short_name(int node) const {
    const std::string& name = model_.nodes[index(node)].name;
    const std::size_t dot = name.rfind('.');
    return dot == std::string::npos ? name : name.substr(dot + 1);
  }

  // Nodes that share the last part of their name with another one are called by all of it: options
  // are told apart by their names.
  std::string name_of(const std::vector<bool>& kept) const {
    const std::vector<int> nodes = worth_keeping();
    std::map<std::string, int> called;
    for (const int n : nodes) ++called[short_name(n)];
    std::string again;
    for (const int n : nodes) {
      if (kept[index(n - begin_)]) continue;
      const std::string name = short_name(n);
      again +=
          (again.empty() ? "" : ",") + (called[name] == 1 ? name : model_.nodes[index(n)].name);
    }
    return again.empty() ? "keep" : "again:" + again;
  }

  using Found = std::vector<std::pair<ChainOption, std::vector<bool>>>;

  static bool dominates(const ChainOption& a, const ChainOption& b) {
    const auto seconds = [](const ChainOption& o) {
      return o.forward.seconds + o.backward.seconds;
    };
    return a.saved_bytes <= b.saved_bytes && seconds(a) <= seconds(b) &&
           a.saved_bytes + a.forward.transient_bytes <= b.saved_bytes + b.forward.transient_bytes &&
           a.saved_bytes + a.backward.transient_bytes <= b.saved_bytes + b.backward.transient_bytes;
  }

  // The first of equals stays, so that the list does not depend on chance; keeping all always does.
  static Found undominated(Found found) {
    Found result;
    for (std::size_t k = 0; k < found.size(); ++k) {
      bool stays = true;
      for (std::size_t other = 0; other < found.size() && stays && k > 0; ++other) {
        if (other == k || !dominates(found[other].first, found[k].first)) continue;
        stays = dominates(found[k].first, found[other].first) && k < other;
      }
      if (stays) result.push_back(found[k]);
    }
    std::stable_sort(result.begin() + 1, result.end(), [](const auto& a, const auto& b) {
      return a.first.saved_bytes > b.first.saved_bytes;
    });
    return result;
  }

  // Where there are too many, those stay that are spread over the saved bytes.
  static Found thinned(Found found) {
    if (found.size() <= most_options) return found;
    Found result = {found.front()};
    for (std::size_t k = 1; k < most_options; ++k) {
      result.push_back(found[1 + (k - 1) * (found.size() - 2) / (most_options - 2)]);
    }
    return result;
  }

  const ModelGraph& model_;
  const TaskGraph& tasks_;
  int begin_;
  int end_;
  int input_;
  int output_;
  std::vector<bool> counted_;
  std::vector<bool> wanted_at_end_;
  std::int64_t gradient_bytes_ = 0;
};

}  // namespace

BlockOptions make_block_options(const ModelGraph& model, const TaskGraph& tasks, int begin, int end,
                                int input, int output) {
  return BlockSolver(model, tasks, begin, end, input, output).solve();
}

}  // namespace garonne::plan
