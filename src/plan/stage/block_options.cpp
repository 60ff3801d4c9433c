#include "plan/stage/block_options.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/graph/liveness.hpp"
#include "plan/graph/task_option.hpp"
#include "plan/stage/block_graph.hpp"

namespace garonne::plan {
namespace {

// Beyond so many, all choices are too many.
constexpr std::size_t most_choices = 1024;
constexpr std::size_t most_options = 24;
// There the solvers of graphs are asked as well, for so many budgets, where a block is not too
// large for them.
constexpr int solved_budgets = 8;
constexpr std::int64_t solver_rounds = 100;
constexpr std::size_t most_solved_nodes = 100;

// By node of the block.
using Choice = std::vector<RecordFate>;

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
    find_worth_keeping();
  }

  BlockOptions solve() {
    BlockOptions result;
    ChainBlock& block = result.block;
    block.output_bytes = model_.values[as_index(output_)].bytes;
    block.gradient_bytes = gradient_bytes_;
    block.forward = plain_forward();
    Found found;
    for (const auto& choice : choices()) found.emplace_back(option_of(choice), choice);
    found = thinned(undominated(std::move(found)));
    // On top of the others, so that a chain has no less to choose from.
    for (const auto& choice : solved_choices()) found.emplace_back(option_of(choice), choice);
    for (const auto& [option, choice] : undominated(std::move(found))) {
      block.options.push_back(option);
      result.fates.push_back(choice);
    }
    return result;
  }

 private:
  using Found = std::vector<std::pair<ChainOption, Choice>>;

  const NodeSpec& node(int n) const { return model_.nodes[as_index(n)]; }
  bool inside(int node) const { return node >= begin_ && node < end_; }

  // Counted is what the block makes; what others read of it outlives it.
  void find_values() {
    const auto& all = tasks_.graph.tasks;
    for (std::size_t t = 0; t < all.size(); ++t) {
      if (inside(tasks_.step_of_task[t].node)) {
        for (const int value : made_by_any_option(all[t])) {
          counted_[as_index(value)] = tasks_.model_value[as_index(value)] != output_ || output_ < 0;
          if (tasks_.graph.values[as_index(value)].live_at_end) {
            wanted_at_end_[as_index(value)] = true;
            gradient_bytes_ += tasks_.graph.values[as_index(value)].bytes;
          }
        }
        continue;
      }
      for (const auto* list : {&all[t].reads, &all[t].updates}) {
        for (const int value : *list) wanted_at_end_[as_index(value)] = true;
      }
      for (const TaskOption& option : all[t].options) {
        for (const int value : option.reads) wanted_at_end_[as_index(value)] = true;
      }
    }
    for (std::size_t v = 0; v < counted_.size(); ++v) {
      wanted_at_end_[v] = wanted_at_end_[v] && counted_[v];
    }
  }

  // In whatever way.
  bool pinned_inside(int value) const {
    for (int n = begin_; n < end_; ++n) {
      const NodeSpec& node = model_.nodes[as_index(n)];
      for (const int k : exact_options(node)) {
        const auto& pinned = node.keep_option(k).pinned_values;
        if (std::find(pinned.begin(), pinned.end(), value) != pinned.end()) return true;
      }
    }
    return false;
  }

  // Nodes of which something is read again by a backward of the block.
  void find_worth_keeping() {
    for (int n = begin_; n < end_; ++n) {
      const NodeSpec& node = model_.nodes[as_index(n)];
      bool worth = node.output != output_ && pinned_inside(node.output);
      for (const int k : exact_options(node)) worth = worth || node.keep_option(k).has_record();
      if (worth) worth_keeping_.push_back(n);
    }
  }

  // most_choices + 1 where there are more.
  std::size_t count_choices() const {
    std::size_t count = 1;
    for (const int n : worth_keeping_)
      count = std::min(count * possible_fates(node(n)).size(), most_choices + 1);
    return count;
  }

  std::vector<Choice> choices() const {
    const std::vector<int>& nodes = worth_keeping_;
    const Choice all(as_index(end_ - begin_));
    std::vector<Choice> result = {all};
    // By node: made again first, so that they are counted up as binary numbers are.
    std::vector<std::vector<RecordFate>> fates;
    for (const int n : nodes) {
      fates.push_back(possible_fates(model_.nodes[as_index(n)]));
      std::rotate(fates.back().begin(), fates.back().end() - 1, fates.back().end());
    }
    const std::size_t count = count_choices();
    if (count > most_choices) {
      add_greedy_choices(nodes, all, result);
      return result;
    }
    for (std::size_t number = 0; number < count; ++number) {
      Choice choice = all;
      std::size_t left = number;
      for (std::size_t k = 0; k < nodes.size(); ++k) {
        choice[as_index(nodes[k] - begin_)] = fates[k][left % fates[k].size()];
        left /= fates[k].size();
      }
      if (choice != all) result.push_back(std::move(choice));
    }
    return result;
  }

  // Where all choices are too many: what a solver of graphs keeps at several budgets for it.
  std::vector<Choice> solved_choices() const {
    if (count_choices() <= most_choices || worth_keeping_.size() > most_solved_nodes) return {};
    const Choice all(as_index(end_ - begin_));
    Choice none = all;
    for (const int n : worth_keeping_) none[as_index(n - begin_)].fate = Fate::Recompute;
    const std::int64_t output = model_.values[as_index(output_)].bytes;
    const std::int64_t most = option_of(all).saved_bytes - output;
    const std::int64_t least = option_of(none).saved_bytes - output;
    const BlockGraph block(tasks_, begin_, end_, counted_, wanted_at_end_);
    std::vector<Choice> result;
    for (int k = 0; k < solved_budgets; ++k) {
      const std::vector<bool> kept =
          block.kept_within(least + (most - least) * k / solved_budgets, solver_rounds);
      Choice choice = all;
      for (const int n : worth_keeping_) {
        if (!kept[as_index(n - begin_)]) choice[as_index(n - begin_)].fate = Fate::Recompute;
      }
      if (std::find(result.begin(), result.end(), choice) == result.end())
        result.push_back(std::move(choice));
    }
    return result;
  }

  // From keeping all to keeping nothing, each time keeping that node less, or in another way, that
  // saves most bytes for the seconds that it adds.
  void add_greedy_choices(const std::vector<int>& nodes, Choice choice,
                          std::vector<Choice>& result) const {
    ChainOption now = option_of(choice);
    std::set<int> left(nodes.begin(), nodes.end());
    while (!left.empty()) {
      int best = -1;
      RecordFate best_fate;
      double best_price = 0;
      for (const int n : left) {
        RecordFate& fate = choice[as_index(n - begin_)];
        const RecordFate before = fate;
        for (const RecordFate next : possible_fates(model_.nodes[as_index(n)])) {
          // Each way once: from the first to another, from any to being made again.
          if (next == RecordFate() || (before != RecordFate() && next.fate == Fate::Keep)) continue;
          fate = next;
          const ChainOption without = option_of(choice);
          fate = before;
          const double price =
              (without.backward.seconds - now.backward.seconds + 1e-12) /
              static_cast<double>(std::max<std::int64_t>(now.saved_bytes - without.saved_bytes, 1));
          if (best >= 0 && price >= best_price) continue;
          best = n;
          best_fate = next;
          best_price = price;
        }
      }
      if (best_fate.fate == Fate::Recompute) left.erase(best);
      choice[as_index(best - begin_)] = best_fate;
      now = option_of(choice);
      result.push_back(choice);
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
      const NodeSpec& node = model_.nodes[as_index(schedule[as_index(step)].node)];
      if (node.output == output_) output = model_.values[as_index(output_)].bytes;
      peak = std::max(peak, traced.during_bytes[as_index(step)] + output);
    }
    return peak;
  }

  PassCost plain_forward() const {
    NodeSchedule schedule;
    for (int n = begin_; n < end_; ++n) schedule.push_back({n, Pass::Forward});
    const LivenessTrace traced = trace(schedule, false);
    const std::int64_t output = model_.values[as_index(output_)].bytes;
    return {traced.seconds, std::max<std::int64_t>(0, forward_peak(schedule, traced) - output)};
  }

  ChainOption option_of(const Choice& choice) const {
    ScheduleWriter writer(model_);
    if (input_ >= 0) writer.assume_value(input_);
    for (int n = begin_; n < end_; ++n) writer.forward(n);
    for (int n = begin_; n < end_; ++n) {
      const RecordFate fate = choice[as_index(n - begin_)];
      writer.decide_record(n, fate);
      if (node(n).output != output_) writer.decide_value(node(n).output, fate.fate);
    }
    for (int n = end_ - 1; n >= begin_; --n) writer.backward(n);
    const NodeSchedule schedule = writer.take();
    const LivenessTrace traced = trace(schedule, true);

    const std::size_t forwards = as_index(end_ - begin_);
    const std::int64_t inner = traced.live_bytes[forwards - 1];
    const std::int64_t input = input_ >= 0 ? model_.values[as_index(input_)].bytes : 0;
    ChainOption option;
    option.saved_bytes = inner + model_.values[as_index(output_)].bytes;
    option.forward.transient_bytes =
        std::max<std::int64_t>(0, forward_peak(schedule, traced) - option.saved_bytes);
    for (std::size_t step = 0; step < forwards; ++step) {
      const NodeSpec& node = model_.nodes[as_index(schedule[step].node)];
      option.forward.seconds += schedule[step].keeps()
                                    ? node.keep_option(schedule[step].option).forward_keep.seconds
                                    : node.forward.seconds;
    }
    option.backward.seconds = traced.seconds - option.forward.seconds;
    std::int64_t peak = 0;
    for (std::size_t step = forwards; step < schedule.size(); ++step) {
      peak = std::max(peak, traced.during_bytes[step]);
    }
    option.backward.transient_bytes =
        std::max<std::int64_t>(0, peak - inner - input - gradient_bytes_);
    option.name = name_of(choice);
    return option;
  }

  std::string short_name(int node) const {
    const std::string& name = model_.nodes[as_index(node)].name;
    const std::size_t dot = name.rfind('.');
    return dot == std::string::npos ? name : name.substr(dot + 1);
  }

  // Nodes that share the last part of their name with another one are called by all of it: options
  // are told apart by their names.
  std::string name_of(const Choice& choice) const {
    std::map<std::string, int> called;
    for (const int n : worth_keeping_) ++called[short_name(n)];
    std::string again;
    std::string ways;
    for (const int n : worth_keeping_) {
      const RecordFate fate = choice[as_index(n - begin_)];
      const std::string name = called[short_name(n)] == 1 ? short_name(n) : node(n).name;
      if (fate.fate == Fate::Recompute) {
        again += (again.empty() ? "again:" : ",") + name;
      } else if (fate.option > 0) {
        ways += (ways.empty() ? "" : ",") + name + "=" + node(n).keep_option(fate.option).name;
      }
    }
    if (again.empty()) return ways.empty() ? "keep" : ways;
    return ways.empty() ? again : again + " " + ways;
  }

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
  std::vector<int> worth_keeping_;
};

}  // namespace

BlockOptions make_block_options(const ModelGraph& model, const TaskGraph& tasks, int begin, int end,
                                int input, int output) {
  return BlockSolver(model, tasks, begin, end, input, output).solve();
}

}  // namespace garonne::plan
