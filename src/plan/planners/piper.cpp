// Piper (Tarnawski, Narayanan, Phanishayee, NeurIPS'21): stages of any numbers of data and tensor
// ranks whose slowest is as fast as can be, by dynamic programming over what is left of the model,
// the devices for it and the sum of the data ranks of its stages, which says how many micro-batches
// are in flight. In a stage the blocks that cost least seconds a byte are run again until it fits.
// One micro-batch size, that of the run file; 1F1B.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "base/index.hpp"
#include "plan/planners/stage_costs.hpp"

namespace garonne::plan {
namespace {

constexpr double does_not_fit = std::numeric_limits<double>::infinity();
// Steps of the dynamic program, some nanoseconds each.
constexpr double most_piper_steps = 1e9;

// Ranks of a stage.
struct Width {
  int data = 1;
  int tensor = 1;
};

struct StageTime {
  double seconds = does_not_fit;  // of a micro-batch, over the data ranks
  bool recomputes = false;
};

class Piper {
 public:
  explicit Piper(PlannerProblem& problem)
      : problem_(problem),
        inputs_(problem.inputs()),
        micro_batches_(inputs_.limits.global_batch / inputs_.micro_batch) {
    const Cluster& cluster = inputs_.cluster;
    const bool leaves = problem.ranks() > cluster.devices_per_node;
    bytes_per_second_ = (leaves ? cluster.between_nodes : cluster.inside_node).bytes_per_second;
    for (const std::int64_t tensor : divisors_of(problem.ranks())) {
      if (tensor > inputs_.limits.most_tensor) break;
      const auto* costs = problem.blocks(static_cast<int>(tensor), inputs_.micro_batch);
      if (costs == nullptr) continue;
      blocks_ = static_cast<int>(costs->size());
      for (const std::int64_t data : divisors_of(micro_batches_)) {
        if (data * tensor <= problem.ranks())
          widths_.push_back({static_cast<int>(data), static_cast<int>(tensor)});
      }
    }
    times_.resize(as_index(blocks_) * as_index(blocks_) * widths_.size());
  }

  int blocks() const { return blocks_; }
  std::int64_t micro_batches() const { return micro_batches_; }
  double steps() const {
    const double ranks = problem_.ranks();
    return 0.5 * blocks_ * blocks_ * ranks * ranks * static_cast<double>(widths_.size());
  }

  // Sets what is placed and the seconds of a micro-batch; neither where nothing fits.
  void solve(NamedChoice& choice) {
    const int ranks = problem_.ranks();
    best_.assign(as_index(blocks_) + 1,
                 std::vector<std::vector<Best>>(as_index(ranks) + 1,
                                                std::vector<Best>(as_index(ranks) + 1)));
    for (auto& of_ranks : best_[as_index(blocks_)]) {
      for (Best& best : of_ranks) best.seconds = 0;
    }
    for (int first = blocks_ - 1; first >= 0; --first) {
      if (first > 0 && !may_begin(first)) continue;
      for (int left = 1; left <= ranks; ++left) {
        for (int sum = 1; sum <= left; ++sum)
          best_[as_index(first)][as_index(left)][as_index(sum)] = best_of(first, left, sum);
      }
    }
    int sum = 1;
    for (int s = 1; s <= ranks; ++s) {
      if (best_[0][as_index(ranks)][as_index(s)].seconds <
          best_[0][as_index(ranks)][as_index(sum)].seconds)
        sum = s;
    }
    if (best_[0][as_index(ranks)][as_index(sum)].seconds == does_not_fit) return;
    choice.seconds = best_[0][as_index(ranks)][as_index(sum)].seconds;
    int left = ranks;
    for (int first = 0; first < blocks_;) {
      const Best& best = best_[as_index(first)][as_index(left)][as_index(sum)];
      const bool recomputes = time_of(first, best.last, best.width, sum).recomputes;
      const Width& width = widths_[best.width];
      choice.placed.push_back({first, best.last, width.data, width.tensor, recomputes});
      first = best.last;
      left -= width.data * width.tensor;
      sum -= width.data;
    }
  }

 private:
  // Of the blocks from some block on: their first stage is up to `last`.
  struct Best {
    double seconds = does_not_fit;
    int last = 0;
    std::size_t width = 0;
  };

  const std::vector<BlockCost>& costs(int tensor) {
    return *problem_.blocks(tensor, inputs_.micro_batch);
  }
  bool may_begin(int block) {
    return costs(widths_.front().tensor)[as_index(block)].may_begin_part;
  }

  Best best_of(int first, int left, int sum) {
    Best best;
    for (int last = first + 1; last <= blocks_; ++last) {
      if (last < blocks_ && !may_begin(last)) continue;
      for (std::size_t w = 0; w < widths_.size(); ++w) {
        const Width& width = widths_[w];
        const int devices = width.data * width.tensor;
        if (devices > left || width.data > sum) continue;
        // `sum` of nothing is nothing.
        if (last == blocks_ && width.data != sum) continue;
        if (last < blocks_ && (devices == left || width.data == sum)) continue;
        const double behind =
            last == blocks_
                ? 0
                : best_[as_index(last)][as_index(left - devices)][as_index(sum - width.data)]
                      .seconds;
        if (behind >= best.seconds) continue;
        const double seconds = std::max(behind, time_of(first, last, w, sum).seconds);
        if (seconds < best.seconds) best = {seconds, last, w};
      }
    }
    return best;
  }

  const StageTime& time_of(int first, int last, std::size_t w, int sum) {
    const Width& width = widths_[w];
    auto& by_in_flight =
        times_[(as_index(first) * as_index(blocks_) + as_index(last - 1)) * widths_.size() + w];
    if (by_in_flight.empty()) {
      const int most = (problem_.ranks() + width.data - 1) / width.data;
      for (int in_flight = 1; in_flight <= most; ++in_flight)
        by_in_flight.push_back(make_time(first, last, width, in_flight));
    }
    return by_in_flight[as_index((sum - 1) / width.data)];
  }

  StageTime make_time(int first, int last, const Width& width, int in_flight) {
    const auto& blocks = costs(width.tensor);
    const StageCost cost = stage_cost(blocks, first, last);
    StageTime time;
    std::int64_t bytes = stage_bytes(inputs_.step, cost, in_flight, false);
    double seconds = cost.seconds(false);
    std::vector<int> order(as_index(last - first));
    std::iota(order.begin(), order.end(), first);
    const auto saves = [&](int b) {
      return blocks[as_index(b)].options.front().saved_bytes -
             blocks[as_index(b)].options.back().saved_bytes;
    };
    const auto price = [&](int b) {
      return blocks[as_index(b)].options.back().again_seconds /
             static_cast<double>(std::max<std::int64_t>(saves(b), 1));
    };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return price(a) < price(b); });
    for (const int b : order) {
      if (bytes <= inputs_.budget_bytes) break;
      bytes -= saves(b) * in_flight;
      seconds += blocks[as_index(b)].options.back().again_seconds;
      time.recomputes = true;
    }
    if (bytes > inputs_.budget_bytes) return time;
    std::int64_t messages = first > 0 ? cost.input_bytes : 0;
    if (last < blocks_) messages += blocks[as_index(last)].input_bytes;
    const double gradients =
        static_cast<double>(cost.trained.elements * inputs_.step.element_bytes.gradient);
    const double summed = 4.0 * (width.data - 1) * gradients /
                          (static_cast<double>(width.data) * static_cast<double>(micro_batches_));
    time.seconds = (seconds + 2 * static_cast<double>(messages) / bytes_per_second_) / width.data +
                   summed / bytes_per_second_;
    return time;
  }

  PlannerProblem& problem_;
  const PlannerInputs& inputs_;
  std::int64_t micro_batches_;
  double bytes_per_second_ = 1;
  int blocks_ = 0;
  std::vector<Width> widths_;
  std::vector<std::vector<std::vector<Best>>> best_;  // by first block, devices, sum of data ranks
  // By first and last block and width: by micro-batches in flight, from one.
  std::vector<std::vector<StageTime>> times_;
};

}  // namespace

NamedChoice choose_piper(PlannerProblem& problem) {
  NamedChoice choice;
  choice.words = "nothing";
  const std::int64_t micro_batch = problem.inputs().micro_batch;
  if (problem.global_batch() % micro_batch != 0) {
    choice.note = fmt::format("micro-batches of {} do not divide the batch", micro_batch);
    return choice;
  }
  Piper piper(problem);
  if (piper.blocks() == 0) {
    choice.note = fmt::format("no micro-batch of {}", micro_batch);
    return choice;
  }
  if (piper.steps() > most_piper_steps) {
    choice.note = fmt::format("not asked: {} blocks on {} ranks are too many for its program",
                              piper.blocks(), problem.ranks());
    return choice;
  }
  piper.solve(choice);
  if (choice.placed.empty()) return nothing_fits();
  choice.micro_batch = micro_batch;
  choice.schedule = "1f1b";
  choice.seconds *= static_cast<double>(piper.micro_batches());
  choice.words = words_of(choice.placed);
  set_nearest_grid(problem, choice.schedule, choice);
  return choice;
}

}  // namespace garonne::plan
