#include "plan/stage/kept_search.hpp"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <vector>

#include "plan/graph/liveness.hpp"

namespace garonne::plan {
namespace {

std::size_t index(int id) {
  return static_cast<std::size_t>(id);
}

struct Score {
  double overflow = 0;  // bytes over the budget, summed over the steps
  double seconds = 0;
  std::int64_t peak_bytes = 0;
};

class KeptSearch {
 public:
  KeptSearch(const ModelGraph& model, const TaskGraph& tasks, std::int64_t budget_bytes,
             std::int64_t most_traces)
      : model_(model),
        tasks_(tasks),
        budget_bytes_(budget_bytes),
        traces_left_(most_traces),
        kept_(keep_everything(model)) {
    find_candidates();
    now_ = score();
    leanest_ = kept_;
    leanest_bytes_ = now_.peak_bytes;
  }

  bool drop_until_it_fits() {
    using Entry = std::tuple<double, int, int>;  // price, node, turn of the price
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    int turn = 0;
    for (const int n : candidates_) queue.emplace(0.0, n, -1);
    while (now_.overflow > 0 && !queue.empty() && traces_left_ > 0) {
      const auto [price, n, priced] = queue.top();
      queue.pop();
      if (priced != turn) {
        const double fresh = price_of_dropping(n);
        if (fresh < std::numeric_limits<double>::infinity())
          queue.emplace(fresh, n, turn);
        else
          later_.push_back(n);
        continue;
      }
      set(n, false);
      accept(score());
      ++turn;
      // What did not help before may help now.
      for (const int other : later_) queue.emplace(0.0, other, -1);
      later_.clear();
    }
    return now_.overflow <= 0;
  }

  // Puts back what fits, most seconds first, then exchanges.
  void improve() {
    for (bool changed = true; changed && traces_left_ > 0;) changed = put_back() || exchange();
  }

  KeptSearchResult result(const KeptSet& kept) const {
    KeptSearchResult result;
    result.schedule = recompute_on_demand(model_, kept);
    const LivenessTrace trace =
        trace_liveness(tasks_.graph, to_task_schedule(tasks_, result.schedule));
    result.peak_bytes = trace.peak_bytes;
    result.seconds = trace.seconds;
    return result;
  }
  const KeptSet& kept() const { return kept_; }
  const KeptSet& leanest() const { return leanest_; }

 private:
  // Nodes of which a backward reads something.
  void find_candidates() {
    std::vector<bool> pinned(model_.values.size(), false);
    for (const auto& node : model_.nodes) {
      for (const int value : node.pinned_values) pinned[index(value)] = true;
    }
    for (std::size_t n = 0; n < model_.nodes.size(); ++n) {
      const NodeSpec& node = model_.nodes[n];
      if (pinned[index(node.output)] || !node.private_slot_bytes.empty()) {
        candidates_.push_back(static_cast<int>(n));
      }
    }
  }

  void set(int n, bool keep) {
    kept_.values[index(model_.nodes[index(n)].output)] = keep;
    kept_.records[index(n)] = keep;
  }
  bool keeps(int n) const { return kept_.records[index(n)]; }

  Score score() {
    --traces_left_;
    const LivenessTrace trace =
        trace_liveness(tasks_.graph, to_task_schedule(tasks_, recompute_on_demand(model_, kept_)));
    Score score;
    score.seconds = trace.seconds;
    score.peak_bytes = trace.peak_bytes;
    for (const std::int64_t bytes : trace.during_bytes) {
      score.overflow += static_cast<double>(std::max<std::int64_t>(0, bytes - budget_bytes_));
    }
    return score;
  }

  void accept(const Score& score) {
    now_ = score;
    if (score.peak_bytes >= leanest_bytes_) return;
    leanest_bytes_ = score.peak_bytes;
    leanest_ = kept_;
  }

  double price_of_dropping(int n) {
    set(n, false);
    const Score without = score();
    set(n, true);
    const double gain = now_.overflow - without.overflow;
    if (gain <= 0) return std::numeric_limits<double>::infinity();
    return std::max(0.0, without.seconds - now_.seconds) / gain;
  }

  bool put_back() {
    std::vector<std::pair<double, int>> gains;
    for (const int n : candidates_) {
      if (keeps(n) || traces_left_ <= 0) continue;
      set(n, true);
      const Score with = score();
      set(n, false);
      if (with.overflow <= 0 && with.seconds < now_.seconds) gains.emplace_back(with.seconds, n);
    }
    if (gains.empty()) return false;
    set(std::min_element(gains.begin(), gains.end())->second, true);
    accept(score());
    return true;
  }

  // Keeps one more and drops one in its place: the first pair that saves time.
  bool exchange() {
    for (const int in : candidates_) {
      if (keeps(in)) continue;
      set(in, true);
      for (const int out : candidates_) {
        if (out == in || !keeps(out)) continue;
        if (traces_left_ <= 0) break;
        set(out, false);
        const Score other = score();
        if (other.overflow <= 0 && other.seconds < now_.seconds * (1 - 1e-9)) {
          accept(other);
          return true;
        }
        set(out, true);
      }
      set(in, false);
    }
    return false;
  }

  const ModelGraph& model_;
  const TaskGraph& tasks_;
  std::int64_t budget_bytes_;
  std::int64_t traces_left_;
  KeptSet kept_;
  KeptSet leanest_;
  std::int64_t leanest_bytes_ = 0;
  std::vector<int> candidates_;
  std::vector<int> later_;  // nodes whose dropping does not help now
  Score now_;
};

}  // namespace

std::optional<KeptSearchResult> search_kept(const ModelGraph& model, const TaskGraph& tasks,
                                            std::int64_t budget_bytes, std::int64_t most_traces) {
  KeptSearch search(model, tasks, budget_bytes, most_traces);
  if (!search.drop_until_it_fits()) return std::nullopt;
  search.improve();
  return search.result(search.kept());
}

KeptSearchResult search_leanest(const ModelGraph& model, const TaskGraph& tasks,
                                std::int64_t most_traces) {
  KeptSearch search(model, tasks, 0, most_traces);
  search.drop_until_it_fits();
  return search.result(search.leanest());
}

}  // namespace garonne::plan
