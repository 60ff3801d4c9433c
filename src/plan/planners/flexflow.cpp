// FlexFlow (Jia, Zaharia, Aiken, MLSys'19): each block has data and tensor ranks of its own, found
// by a Markov chain over such choices. The time of one is simulated: forwards and backwards of the
// whole batch one after the other, messages where neighbours differ, sums of gradients one after
// the other beside the backwards. A chain of blocks has nothing to do at the same time, so a block
// is on the first ranks. Bytes beyond the budget cost a millisecond for each million.
//
// A step of the chain gives one block another choice, or hands that of a block on to neighbours. A
// faster one is taken, a slower one with probability exp(−d), where d is by how much, in percent of
// where the chain started; now and then it goes on from the best.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "base/index.hpp"
#include "plan/model/group_links.hpp"
#include "plan/planners/stage_costs.hpp"

namespace garonne::plan {
namespace {

constexpr double seconds_a_byte_beyond = 1e-9;
constexpr std::int64_t least_steps = 10'000;
constexpr std::int64_t steps_a_block = 4'000;
constexpr double hands_on = 0.25;  // in place of another choice
constexpr double hands_on_further = 0.7;

struct StageWidth {
  int data = 1;
  int tensor = 1;
  bool operator==(const StageWidth&) const = default;
};

class Simulator {
 public:
  explicit Simulator(PlannerProblem& problem) : inputs_(problem.inputs()) {
    for (const std::int64_t tensor : divisors_of(problem.ranks())) {
      if (tensor > inputs_.limits.most_tensor) break;
      for (const std::int64_t data : divisors_of(problem.ranks() / tensor)) {
        if (problem.global_batch() % data != 0) continue;
        const StageWidth width{static_cast<int>(data), static_cast<int>(tensor)};
        const auto* costs = problem.blocks(width.tensor, problem.global_batch() / data);
        if (costs == nullptr) continue;
        widths_.push_back(width);
        links_.push_back(link_of(width));
        tasks_.emplace_back();
        for (int b = 0; b < static_cast<int>(costs->size()); ++b)
          tasks_.back().push_back(task_of(*costs, b, widths_.size() - 1));
      }
    }
  }

  const std::vector<StageWidth>& widths() const { return widths_; }
  int blocks() const { return tasks_.empty() ? 0 : static_cast<int>(tasks_.front().size()); }
  std::int64_t batch_bytes(int block) const { return tasks_.front()[as_index(block)].batch_bytes; }

  // `state`: by block, an index into widths().
  double seconds(const std::vector<std::size_t>& state) const {
    double now = 0;
    for (int b = 0; b < blocks(); ++b) now += task(state, b).forward + message(state, b);
    double lane = 0;  // where the sums are done
    std::int64_t bytes = 0;
    std::int64_t working = 0;
    for (int b = blocks(); b-- > 0;) {
      const Task& one = task(state, b);
      now += one.backward;
      lane = std::max(lane, now) + one.sum;
      now += message(state, b);
      bytes += one.bytes;
      working = std::max(working, one.working_bytes);
    }
    const std::int64_t beyond = std::max<std::int64_t>(bytes + working - inputs_.budget_bytes, 0);
    return std::max(now, lane) + seconds_a_byte_beyond * static_cast<double>(beyond);
  }

 private:
  struct Task {
    double forward = 0;
    double backward = 0;
    double sum = 0;
    std::int64_t bytes = 0;
    std::int64_t working_bytes = 0;
    std::int64_t batch_bytes = 0;  // that come in, of all data ranks
  };

  const Link& link_of(const StageWidth& width) const {
    const bool leaves = width.data * width.tensor > inputs_.cluster.devices_per_node;
    return leaves ? inputs_.cluster.between_nodes : inputs_.cluster.inside_node;
  }

  Task task_of(const std::vector<BlockCost>& costs, int b, std::size_t w) const {
    const StageCost cost = stage_cost(costs, b, b + 1);
    TrainedSize trained;
    for (const BlockParameter& used : costs[as_index(b)].parameters) {
      if (used.earlier_block < 0) trained.add(used);
    }
    const int data = widths_[w].data;
    Task task;
    task.forward = cost.forward;
    task.backward = cost.backward;
    if (data > 1)
      task.sum = collective_seconds(
          "all-reduce", trained.elements * inputs_.step.element_bytes.gradient, data, links_[w]);
    task.bytes = training_bytes(inputs_.step, trained) + cost.kept_bytes;
    task.working_bytes = cost.working_bytes;
    task.batch_bytes = cost.input_bytes * data;
    return task;
  }

  const Task& task(const std::vector<std::size_t>& state, int b) const {
    return tasks_[state[as_index(b)]][as_index(b)];
  }

  // What comes in, where the blocks differ: each rank of the wider one has its part.
  double message(const std::vector<std::size_t>& state, int b) const {
    if (b == 0 || state[as_index(b)] == state[as_index(b - 1)]) return 0;
    const std::size_t wider = size(state[as_index(b)]) >= size(state[as_index(b - 1)])
                                  ? state[as_index(b)]
                                  : state[as_index(b - 1)];
    return message_seconds(batch_bytes(b) / widths_[wider].data, links_[wider]);
  }
  int size(std::size_t w) const { return widths_[w].data * widths_[w].tensor; }

  const PlannerInputs& inputs_;
  std::vector<StageWidth> widths_;
  std::vector<Link> links_;               // by width
  std::vector<std::vector<Task>> tasks_;  // by width and block
};

class Chain {
 public:
  explicit Chain(const Simulator& simulator) : simulator_(simulator), random_(1) {}

  // The best of all states that it comes to.
  std::vector<std::size_t> run(std::vector<std::size_t> state) {
    const double start = simulator_.seconds(state);
    std::vector<std::size_t> best = state;
    double best_seconds = start;
    double seconds = start;
    const std::int64_t steps =
        std::max(least_steps, steps_a_block * static_cast<std::int64_t>(simulator_.blocks()));
    const std::int64_t back_after =
        std::max<std::int64_t>(1, std::min<std::int64_t>(1000, steps / 100));
    for (std::int64_t step = 0; step < steps; ++step) {
      if (step % back_after == 0) {
        state = best;
        seconds = best_seconds;
      }
      std::vector<std::size_t> next = state;
      change(next);
      const double next_seconds = simulator_.seconds(next);
      if (next_seconds < best_seconds) {
        best = next;
        best_seconds = next_seconds;
      }
      if (next_seconds >= seconds && uniform() >= std::exp(-100 * (next_seconds - seconds) / start))
        continue;
      state = std::move(next);
      seconds = next_seconds;
    }
    return best;
  }

 private:
  // In [0, 1); of the library's distributions nobody says what they give.
  double uniform() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  std::size_t below(std::size_t number) {
    return static_cast<std::size_t>(uniform() * static_cast<double>(number));
  }

  void change(std::vector<std::size_t>& state) {
    const int blocks = simulator_.blocks();
    int block = static_cast<int>(below(as_index(blocks)));
    if (blocks == 1 || uniform() >= hands_on) {
      state[as_index(block)] = below(simulator_.widths().size());
      return;
    }
    const std::size_t handed = state[as_index(block)];
    do {
      // To a neighbour, by what passes between the two.
      const double before = block > 0 ? weight(block) : 0;
      const double after = block + 1 < blocks ? weight(block + 1) : 0;
      block += uniform() * (before + after) < before ? -1 : 1;
      state[as_index(block)] = handed;
    } while (uniform() < hands_on_further);
  }
  double weight(int block) const { return 1 + static_cast<double>(simulator_.batch_bytes(block)); }

  const Simulator& simulator_;
  std::mt19937_64 random_;
};

}  // namespace

NamedChoice choose_flexflow(PlannerProblem& problem) {
  const Simulator simulator(problem);
  NamedChoice choice;
  if (simulator.blocks() == 0) {
    choice.words = "nothing";
    choice.note = "the whole batch at once, as it takes it, cannot be run";
    return choice;
  }
  // Data ranks alone, as many as there are.
  std::size_t start = 0;
  for (std::size_t w = 0; w < simulator.widths().size(); ++w) {
    if (simulator.widths()[w].tensor == 1) start = w;
  }
  const std::vector<std::size_t> state =
      Chain(simulator).run(std::vector<std::size_t>(as_index(simulator.blocks()), start));
  choice.seconds = simulator.seconds(state);
  std::map<int, double> seconds_of_tensor;
  bool equal = true;
  bool idle = true;
  for (int b = 0; b < simulator.blocks(); ++b) {
    const StageWidth& width = simulator.widths()[state[as_index(b)]];
    choice.placed.push_back({b, b + 1, width.data, width.tensor, false});
    equal = equal && state[as_index(b)] == state[0];
    idle = idle && width.data * width.tensor < problem.ranks();
    const auto* costs = problem.blocks(width.tensor, problem.global_batch() / width.data);
    seconds_of_tensor[width.tensor] += stage_cost(*costs, b, b + 1).seconds(false);
  }
  // Runs of equal blocks, for people.
  std::vector<PlacedBlocks> runs;
  for (const PlacedBlocks& one : choice.placed) {
    if (!runs.empty() && runs.back().data == one.data && runs.back().tensor == one.tensor)
      runs.back().last = one.last;
    else
      runs.push_back(one);
  }
  choice.words = words_of(runs);
  if (!equal)
    add_note("ranks of its own for each block are not run: all have those that take most time",
             choice);
  if (idle) add_note("it would leave ranks idle", choice);
  const auto most =
      std::max_element(seconds_of_tensor.begin(), seconds_of_tensor.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const GridShape shape{problem.ranks() / most->first, 1, most->first};
  if (problem.global_batch() % shape.data != 0) {
    add_note(fmt::format("{} data ranks do not divide the batch", shape.data), choice);
    return choice;
  }
  choice.micro_batch = problem.global_batch() / shape.data;
  set_grid(problem, shape, "", 0, choice.micro_batch, choice);
  return choice;
}

}  // namespace garonne::plan
