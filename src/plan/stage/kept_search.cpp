#include "plan/stage/kept_search.hpp"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>
#include <vector>

#include "base/index.hpp"
#include "plan/graph/liveness.hpp"

namespace garonne::plan {
namespace {

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
        fates_(keep_everything(model)) {
    find_candidates();
    now_ = score();
    leanest_ = fates_;
    leanest_bytes_ = now_.peak_bytes;
  }

  bool drop_until_it_fits() {
    using Entry = std::tuple<double, int, int>;  // price, number of the drop, turn of the price
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
    int turn = 0;
    const std::vector<Change> drops = all_drops();
    for (int d = 0; d < static_cast<int>(drops.size()); ++d) queue.emplace(0.0, d, -1);
    std::vector<int> later;  // drops that do not help now
    while (now_.overflow > 0 && !queue.empty() && traces_left_ > 0) {
      const auto [price, d, priced] = queue.top();
      queue.pop();
      const Change& drop = drops[as_index(d)];
      // In the meantime it is run again, or kept that way.
      if (!keeps(drop.node) || fate(drop.node) == drop.fate) continue;
      if (priced != turn) {
        const double fresh = price_of(drop);
        if (fresh < std::numeric_limits<double>::infinity())
          queue.emplace(fresh, d, turn);
        else
          later.push_back(d);
        continue;
      }
      set(drop);
      accept(score());
      ++turn;
      // What did not help before may help now.
      for (const int other : later) queue.emplace(0.0, other, -1);
      later.clear();
    }
    return now_.overflow <= 0;
  }

  // Puts back what fits, most seconds first, then exchanges.
  void improve() {
    for (bool changed = true; changed && traces_left_ > 0;) changed = put_back() || exchange();
  }

  KeptSearchResult result(const Fates& fates) const {
    KeptSearchResult result;
    result.schedule = recompute_on_demand(model_, fates);
    const LivenessTrace trace =
        trace_liveness(tasks_.graph, to_task_schedule(tasks_, result.schedule));
    result.peak_bytes = trace.peak_bytes;
    result.seconds = trace.seconds;
    return result;
  }
  const Fates& fates() const { return fates_; }
  const Fates& leanest() const { return leanest_; }

 private:
  // Another fate for a node and its output.
  struct Change {
    int node = 0;
    RecordFate fate;
  };

  // Nodes of which a backward reads something, in whatever way they are kept.
  void find_candidates() {
    std::vector<bool> pinned(model_.values.size(), false);
    for (const auto& node : model_.nodes) {
      for (const int k : exact_options(node)) {
        for (const int value : node.keep_option(k).pinned_values) pinned[as_index(value)] = true;
      }
    }
    for (std::size_t n = 0; n < model_.nodes.size(); ++n) {
      const NodeSpec& node = model_.nodes[n];
      bool has_record = false;
      for (const int k : exact_options(node))
        has_record = has_record || node.keep_option(k).has_record();
      if (pinned[as_index(node.output)] || has_record) candidates_.push_back(static_cast<int>(n));
    }
  }

  // All fates but to be kept the first way, which the search starts from.
  std::vector<Change> all_drops() const {
    std::vector<Change> drops;
    for (const int n : candidates_) {
      for (const RecordFate fate : possible_fates(model_.nodes[as_index(n)])) {
        if (fate != RecordFate()) drops.push_back({n, fate});
      }
    }
    return drops;
  }

  RecordFate fate(int n) const { return fates_.records[as_index(n)]; }
  void set(const Change& change) { set_fate(model_, change.node, change.fate, fates_); }
  bool keeps(int n) const { return fate(n).fate == Fate::Keep; }
  bool keeps_the_first_way(int n) const { return fate(n) == RecordFate(); }

  Score score() {
    --traces_left_;
    const LivenessTrace trace =
        trace_liveness(tasks_.graph, to_task_schedule(tasks_, recompute_on_demand(model_, fates_)));
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
    leanest_ = fates_;
  }

  double price_of(const Change& drop) {
    const RecordFate before = fate(drop.node);
    set(drop);
    const Score without = score();
    set({drop.node, before});
    const double gain = now_.overflow - without.overflow;
    if (gain <= 0) return std::numeric_limits<double>::infinity();
    return std::max(0.0, without.seconds - now_.seconds) / gain;
  }

  bool put_back() {
    std::vector<std::tuple<double, int, int>> gains;  // seconds, node, way
    for (const int n : candidates_) {
      if (keeps_the_first_way(n)) continue;
      const RecordFate before = fate(n);
      for (const RecordFate kept : possible_fates(model_.nodes[as_index(n)])) {
        if (kept.fate != Fate::Keep || kept == before || traces_left_ <= 0) continue;
        set({n, kept});
        const Score with = score();
        set({n, before});
        if (with.overflow <= 0 && with.seconds < now_.seconds)
          gains.emplace_back(with.seconds, n, kept.option);
      }
    }
    if (gains.empty()) return false;
    const auto [seconds, n, option] = *std::min_element(gains.begin(), gains.end());
    set({n, {Fate::Keep, option}});
    accept(score());
    return true;
  }

  // Keeps more of one and less of another in its place: the first pair that saves time.
  bool exchange() {
    for (const int in : candidates_) {
      if (keeps_the_first_way(in)) continue;
      const RecordFate before = fate(in);
      for (const RecordFate kept : possible_fates(model_.nodes[as_index(in)])) {
        if (kept.fate != Fate::Keep || kept == before) continue;
        set({in, kept});
        if (drop_another(in)) return true;
      }
      set({in, before});
    }
    return false;
  }

  bool drop_another(int in) {
    for (const int out : candidates_) {
      if (out == in || !keeps(out)) continue;
      const RecordFate before = fate(out);
      for (const RecordFate dropped : possible_fates(model_.nodes[as_index(out)])) {
        if (dropped == RecordFate() || dropped == before) continue;
        if (traces_left_ <= 0) return false;
        set({out, dropped});
        const Score other = score();
        if (other.overflow <= 0 && other.seconds < now_.seconds * (1 - 1e-9)) {
          accept(other);
          return true;
        }
        set({out, before});
      }
    }
    return false;
  }

  const ModelGraph& model_;
  const TaskGraph& tasks_;
  std::int64_t budget_bytes_;
  std::int64_t traces_left_;
  Fates fates_;
  Fates leanest_;
  std::int64_t leanest_bytes_ = 0;
  std::vector<int> candidates_;
  Score now_;
};

}  // namespace

std::optional<KeptSearchResult> search_kept(const ModelGraph& model, const TaskGraph& tasks,
                                            std::int64_t budget_bytes, std::int64_t most_traces) {
  KeptSearch search(model, tasks, budget_bytes, most_traces);
  if (!search.drop_until_it_fits()) return std::nullopt;
  search.improve();
  return search.result(search.fates());
}

KeptSearchResult search_leanest(const ModelGraph& model, const TaskGraph& tasks,
                                std::int64_t most_traces) {
  KeptSearch search(model, tasks, 0, most_traces);
  search.drop_until_it_fits();
  return search.result(search.leanest());
}

}  // namespace garonne::plan
