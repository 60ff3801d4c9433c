#include "plan/graph/graph_bound.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/index.hpp"
#include "plan/graph/minimum_cut.hpp"
#include "plan/graph/task_option.hpp"

namespace garonne::plan {
namespace {

// Seconds as capacities, which are integers: about so many in all, rounded down, and cut off where
// nothing would be paid for, so that the bound holds.
constexpr double resolution = 1e12;
constexpr double largest_capacity = 1e14;
constexpr int most_moments = 24;
constexpr int most_prices = 40;

double least_seconds(const Task& task) {
  double least = task.options[0].seconds;
  for (const TaskOption& option : task.options) least = std::min(least, option.seconds);
  return least;
}

// What has to be live, or to be made again, at the moment of a task that is once. What only some
// options read does not have to be, and a run counts as if it made what any of its options does.
class Moment {
 public:
  Moment(const ComputationGraph& graph, const std::vector<int>& maker, int task,
         std::int64_t budget_bytes)
      : graph_(graph),
        maker_(maker),
        ran_(graph.tasks.size(), false),
        free_(graph.values.size(), false),
        needed_(graph.values.size(), false) {
    find_ran(task);
    find_needed(task);
    room_ = static_cast<double>(budget_bytes) - taken_by(task);
    for (const Task& each : graph.tasks) total_seconds_ += each.options[0].seconds;
  }

  // Seconds beyond one run of each task; infinite where no schedule exists.
  double bound() const {
    if (room_ < 0) return std::numeric_limits<double>::infinity();
    if (total_seconds_ <= 0) return 0;
    // Lines of the seconds that a choice adds by price: seconds + price * (bytes - room).
    Choice left = choose(0);
    if (left.bytes <= room_) return 0;
    Choice right = choose_fewest_bytes();
    if (right.bytes > room_) return std::numeric_limits<double>::infinity();
    double best = 0;
    for (int i = 0; i < most_prices && left.bytes > right.bytes; ++i) {
      const double price = (right.seconds - left.seconds) / (left.bytes - right.bytes);
      const Choice between = choose(price);
      best = std::max(best, between.cut - price * room_);
      const double line = left.seconds + price * left.bytes;
      if (between.seconds + price * between.bytes >= line * (1 - 1e-9)) break;
      (between.bytes > room_ ? left : right) = between;
    }
    return best;
  }

 private:
  static constexpr int nobody = -1;
  static constexpr int not_made = -2;

  struct Choice {
    double seconds = 0;
    double bytes = 0;
    double cut = 0;  // seconds + price * bytes, rounded down
  };

  // What surely ran before: what the task and the ones before it that are once depend on.
  void find_ran(int task) {
    std::vector<int> stack;
    const auto visit = [&](int t) {
      if (ran_[as_index(t)]) return;
      ran_[as_index(t)] = true;
      stack.push_back(t);
    };
    for (int t = 0; t <= task; ++t) {
      if (graph_.tasks[as_index(t)].once) visit(t);
    }
    while (!stack.empty()) {
      const Task& next = graph_.tasks[as_index(stack.back())];
      stack.pop_back();
      for (const auto* list : {&next.reads, &next.updates}) {
        for (const int value : *list) {
          if (maker_[as_index(value)] >= 0) visit(maker_[as_index(value)]);
        }
      }
    }
    ran_[as_index(task)] = false;
  }

  void find_needed(int task) {
    for (int t = task; t < static_cast<int>(graph_.tasks.size()); ++t) {
      const Task& later = graph_.tasks[as_index(t)];
      if (!later.once) continue;
      for (const auto* list : {&later.reads, &later.updates}) {
        for (const int value : *list) needed_[as_index(value)] = true;
      }
    }
    for (std::size_t v = 0; v < needed_.size(); ++v) {
      if (graph_.values[v].live_at_end) needed_[v] = true;
    }
  }

  // Who can make a value again that was made before the moment?
  int again(int value) const {
    const int maker = maker_[as_index(value)];
    if (maker < 0) return nobody;
    if (!ran_[as_index(maker)]) return not_made;
    return graph_.tasks[as_index(maker)].once ? nobody : maker;
  }

  // Bytes that are live while the task runs, whatever is chosen; these values are free from then
  // on.
  double taken_by(int task) {
    const Task& now = graph_.tasks[as_index(task)];
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const TaskOption& option : now.options) {
      std::int64_t made = option.transient_bytes;
      for (const int value : option.makes) made += graph_.values[as_index(value)].bytes;
      least = std::min(least, made);
    }
    for (const auto* list : {&now.reads, &now.updates}) {
      for (const int value : *list) free_[as_index(value)] = true;
    }
    for (std::size_t v = 0; v < needed_.size(); ++v) {
      if (needed_[v] && again(static_cast<int>(v)) == nobody) free_[v] = true;
    }
    auto taken = static_cast<double>(least);
    for (std::size_t v = 0; v < free_.size(); ++v) {
      if (free_[v]) taken += static_cast<double>(graph_.values[v].bytes);
    }
    return taken;
  }

  Choice choose(double price) const {
    const double scale = resolution / total_seconds_;
    Choice choice = cheapest(
        [&](std::int64_t bytes) {
          const double scaled = price * static_cast<double>(bytes) * scale;
          return static_cast<std::int64_t>(std::min(scaled, largest_capacity));
        },
        [&](double seconds) { return static_cast<std::int64_t>(seconds * scale); });
    choice.cut /= scale;
    return choice;
  }

  Choice choose_fewest_bytes() const {
    return cheapest([](std::int64_t bytes) { return bytes; },
                    [](double) { return std::int64_t{0}; });
  }

  template <typename Keep, typename Run>
  Choice cheapest(const Keep& price_of_keeping, const Run& price_of_running) const {
    const int values = static_cast<int>(graph_.values.size());
    const int tasks = static_cast<int>(graph_.tasks.size());
    const int source = values + tasks;
    const int sink = source + 1;
    MinimumCut cut(sink + 1);
    for (int v = 0; v < values; ++v) {
      const int maker = again(v);
      if (free_[as_index(v)] || maker == not_made) continue;
      if (needed_[as_index(v)]) cut.add_edge(source, v, MinimumCut::unlimited);
      cut.add_edge(v, maker == nobody ? sink : values + maker,
                   price_of_keeping(graph_.values[as_index(v)].bytes));
    }
    for (int t = 0; t < tasks; ++t) {
      if (!ran_[as_index(t)] || graph_.tasks[as_index(t)].once) continue;
      cut.add_edge(values + t, sink, price_of_running(least_seconds(graph_.tasks[as_index(t)])));
      for (const int value : graph_.tasks[as_index(t)].reads) {
        if (!free_[as_index(value)]) cut.add_edge(values + t, value, MinimumCut::unlimited);
      }
    }
    const std::vector<bool> side = cut.solve(source, sink);
    Choice choice;
    for (int v = 0; v < values; ++v) {
      const int maker = again(v);
      if (!side[as_index(v)] || free_[as_index(v)] || maker == not_made) continue;
      if (maker >= 0 && side[as_index(values + maker)]) continue;
      const std::int64_t bytes = graph_.values[as_index(v)].bytes;
      choice.bytes += static_cast<double>(bytes);
      choice.cut += static_cast<double>(price_of_keeping(bytes));
    }
    for (int t = 0; t < tasks; ++t) {
      if (!side[as_index(values + t)]) continue;
      const double seconds = least_seconds(graph_.tasks[as_index(t)]);
      choice.seconds += seconds;
      choice.cut += static_cast<double>(price_of_running(seconds));
    }
    return choice;
  }

  const ComputationGraph& graph_;
  const std::vector<int>& maker_;
  std::vector<bool> ran_;
  std::vector<bool> free_;    // live anyway at the moment
  std::vector<bool> needed_;  // by the task or later
  double room_ = 0;
  double total_seconds_ = 0;
};

}  // namespace

double lower_bound_seconds(const ComputationGraph& graph, std::int64_t budget_bytes) {
  std::vector<int> maker(graph.values.size(), -1);
  std::vector<int> once;
  double base = 0;
  for (int t = 0; t < static_cast<int>(graph.tasks.size()); ++t) {
    const Task& task = graph.tasks[as_index(t)];
    base += least_seconds(task);
    for (const int value : made_by_any_option(task)) maker[as_index(value)] = t;
    if (task.once) once.push_back(t);
  }
  double best = 0;
  const int count = static_cast<int>(once.size());
  const int stride = std::max(1, (count + most_moments - 1) / most_moments);
  for (int i = 0; i < count; i += stride) {
    best = std::max(best, Moment(graph, maker, once[as_index(i)], budget_bytes).bound());
  }
  return base + best;
}

}  // namespace garonne::plan
