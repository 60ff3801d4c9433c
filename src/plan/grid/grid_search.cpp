#include "plan/grid/grid_search.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <queue>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "base/in_threads.hpp"
#include "base/index.hpp"

namespace garonne::plan {
namespace {

// Estimates of bytes may be off by so much: a candidate beyond is doubtful.
constexpr double estimate_slack = 1.15;
// Where nothing fits, so many are planned to find out who needs least.
constexpr int most_lean_plans = 8;
constexpr std::size_t most_lean_estimates = 500;
// Sums of the same seconds in another order.
constexpr double equal_share = 1e-9;

class Search {
 public:
  Search(const std::vector<GridCandidate>& candidates, GridEstimator& estimator,
         std::int64_t budget_bytes, const PlanOfGrid& plan, const GridSearchOptions& options)
      : estimator_(estimator), budget_bytes_(budget_bytes), plan_(plan), options_(options) {
    result_.candidates = static_cast<std::int64_t>(candidates.size());
    for (const auto& candidate : candidates) rows_.push_back({candidate, {}, {}, {}, false});
  }

  GridSearch run() {
    bound();
    descend();
    if (options_.closely) plan_closely();
    result_.best = best_that_differ();
    if (result_.best.empty()) find_leanest();
    return std::move(result_);
  }

 private:
  // Rows in the order in which they may be the next best: (seconds at least, row).
  using Entry = std::tuple<double, std::size_t>;
  using Queue = std::priority_queue<Entry, std::vector<Entry>, std::greater<>>;
  // Estimated ones: (doubtful, seconds, row).
  using EstimatedEntry = std::tuple<bool, double, std::size_t>;
  using EstimatedQueue =
      std::priority_queue<EstimatedEntry, std::vector<EstimatedEntry>, std::greater<>>;

  // What came of planning one ahead of its turn.
  struct Planned {
    GridOutcome outcome;
    std::exception_ptr failure;
  };

  std::size_t most() const { return static_cast<std::size_t>(options_.best); }
  static bool faster(const RankedGrid& a, const RankedGrid& b) {
    return a.outcome.seconds < b.outcome.seconds;
  }

  // Schedules of equal seconds are one grid for who looks for the fastest.
  static bool are_as_good(const RankedGrid& a, const RankedGrid& b) {
    return std::abs(a.outcome.seconds - b.outcome.seconds) <= equal_share * b.outcome.seconds &&
           same_but_for_schedule(a.candidate, b.candidate);
  }
  static std::int64_t held_bytes(const RankedGrid& row) {
    const auto& peaks = row.outcome.peak_bytes;
    return peaks.empty() ? 0 : *std::max_element(peaks.begin(), peaks.end());
  }

  std::vector<RankedGrid> best_that_differ() const {
    std::vector<RankedGrid> sorted = result_.best;
    std::stable_sort(sorted.begin(), sorted.end(), faster);
    std::vector<RankedGrid> best;
    for (RankedGrid& row : sorted) {
      const auto known = std::find_if(best.begin(), best.end(), [&](const RankedGrid& other) {
        return are_as_good(row, other);
      });
      if (known != best.end()) {
        if (held_bytes(row) < held_bytes(*known)) *known = std::move(row);
      } else if (best.size() < most()) {
        best.push_back(std::move(row));
      }
    }
    return best;
  }

  // The time of the last one that is wanted; without end where all are planned.
  double last_wanted() const { return last_wanted_; }
  // What takes so long is not in the place of that one either.
  double least_useless_seconds() const { return last_wanted_ * (1 + 2 * equal_share); }

  void note(std::int64_t done, const std::string& what) const {
    if (options_.progress) options_.progress(done, result_.candidates, what);
  }

  void refuse(std::size_t row, const ConfigError& error) {
    if (result_.refused++ == 0) result_.first_refused = {rows_[row].candidate, error.what()};
  }

  void bound() {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      note(static_cast<std::int64_t>(row), "bounds");
      try {
        rows_[row].bounds = estimator_.bounds(rows_[row].candidate);
      } catch (const ConfigError& error) {
        refuse(row, error);
        continue;
      }
      if (rows_[row].bounds.bytes > budget_bytes_) {
        ++result_.too_large;
        large_.push_back(row);
        continue;
      }
      bounded_.emplace(rows_[row].bounds.seconds, row);
    }
  }

  void descend() {
    EstimatedQueue estimated;  // among those whose bounds leave a chance
    bool gave_up = false;
    while (!bounded_.empty() || !estimated.empty()) {
      const double limit = last_wanted();
      if (!bounded_.empty() && may_be_faster(std::get<0>(bounded_.top()), estimated)) {
        const auto [seconds, row] = bounded_.top();
        if (seconds >= limit && !options_.exhaustive) {
          bounded_ = Queue();
          continue;
        }
        bounded_.pop();
        estimate(row, estimated);
        continue;
      }
      const std::size_t row = row_of(estimated.top());
      estimated.pop();
      if (rows_[row].bounds.seconds >= limit) continue;
      if (!options_.exhaustive && has_planned_enough()) {
        gave_up = true;
        break;
      }
      note(result_.candidates, "planning " + to_string(rows_[row].candidate));
      plan_at_once(row, estimated, [&](std::size_t next) {
        return options_.exhaustive || rows_[next].bounds.seconds < limit;
      });
      if (!plan(row)) continue;
      micro_batches_ += rows_[row].candidate.micro_batches;
      const GridOutcome& outcome = rows_[row].outcome;
      // Of one that is too slow it may not have been asked whether it fits, which makes no
      // difference.
      if (outcome.fits || outcome.seconds >= least_useless_seconds()) {
        fitting_.push_back(row);
        take(rows_[row]);
      } else {
        large_.push_back(row);
      }
    }
    result_.proven = !gave_up;
  }

  bool has_planned_enough() const {
    if (micro_batches_ < options_.most_micro_batches) return false;
    return result_.best.size() >= options_.least_layouts ||
           micro_batches_ >= 4 * options_.most_micro_batches;
  }

  // One that fits.
  void take(const RankedGrid& row) {
    for (RankedGrid& known : result_.best) {
      if (!same_layout(known.candidate, row.candidate)) continue;
      if (!faster(row, known)) return;
      known = row;
      return note_last_wanted();
    }
    result_.best.push_back(row);
    note_last_wanted();
  }

  void note_last_wanted() {
    if (options_.exhaustive || result_.best.size() < most()) return;
    const std::vector<RankedGrid> best = best_that_differ();
    if (best.size() == most()) last_wanted_ = best.back().outcome.seconds;
  }

  // Whether a candidate that takes at least so long may be faster than the best estimate: it gets
  // one, too.
  static bool may_be_faster(double least_seconds, const EstimatedQueue& estimated) {
    if (estimated.empty()) return true;
    const auto [doubtful, seconds, row] = estimated.top();
    return doubtful || least_seconds <= seconds;
  }

  void estimate(std::size_t row, EstimatedQueue& estimated) {
    try {
      rows_[row].estimate = estimator_.estimate(rows_[row].candidate);
    } catch (const ConfigError& error) {
      refuse(row, error);
      return;
    }
    double& least = rows_[row].bounds.seconds;
    least = std::max(least, rows_[row].estimate.least_seconds);
    const double beyond =
        static_cast<double>(rows_[row].estimate.bytes) / static_cast<double>(budget_bytes_);
    // These come last: estimates err on the side of more, but rarely by so much.
    const bool doubtful =
        !options_.exhaustive && !rows_[row].estimate.fits && beyond > estimate_slack;
    estimated.emplace(doubtful, rows_[row].estimate.seconds, row);
  }

  static std::size_t row_of(const Entry& entry) { return std::get<1>(entry); }
  static std::size_t row_of(const EstimatedEntry& entry) { return std::get<2>(entry); }

  // Plans `row` and, in other threads, the first of `queue` that may come next, whose outcomes are
  // kept until it is their turn. What one throws is thrown then, if its turn comes.
  template <typename Ordered, typename Wanted>
  void plan_at_once(std::size_t row, Ordered queue, const Wanted& wanted) {
    if (outcomes_.contains(row)) return;
    std::vector<std::size_t> rows = {row};
    for (; !queue.empty() && rows.size() < as_index(options_.at_once); queue.pop()) {
      const std::size_t next = row_of(queue.top());
      if (!outcomes_.contains(next) && wanted(next)) rows.push_back(next);
    }
    std::vector<Planned> planned = plan_together(rows, plan_);
    for (std::size_t k = 0; k < rows.size(); ++k) outcomes_[rows[k]] = std::move(planned[k]);
  }

  // Each in a thread of its own.
  std::vector<Planned> plan_together(const std::vector<std::size_t>& rows,
                                     const PlanOfGrid& plan_of) const {
    std::vector<Planned> planned(rows.size());
    in_threads(static_cast<int>(rows.size()), [&](int k) {
      Planned& mine = planned[as_index(k)];
      try {
        mine.outcome = plan_of(rows_[rows[as_index(k)]].candidate, least_useless_seconds());
      } catch (...) {
        mine.failure = std::current_exception();
      }
    });
    return planned;
  }

  double fastest() const {
    double seconds = std::numeric_limits<double>::infinity();
    for (const RankedGrid& one : result_.best) seconds = std::min(seconds, one.outcome.seconds);
    return seconds;
  }

  bool may_be_fastest(std::size_t row) const {
    return options_.exhaustive || rows_[row].bounds.seconds < fastest();
  }

  // Those that closer plans may make the fastest: of the listed ones, and of what does not fit.
  std::vector<std::size_t> worth_a_closer_plan() const {
    if (options_.exhaustive) {
      std::vector<std::size_t> all = fitting_;
      all.insert(all.end(), large_.begin(), large_.end());
      return all;
    }
    std::vector<std::size_t> worth;
    const auto add = [&](std::size_t row, std::size_t most) {
      if (worth.size() < most && may_be_fastest(row)) worth.push_back(row);
    };
    for (const RankedGrid& one : best_that_differ()) {
      const auto row = std::ranges::find(rows_, one.candidate, &RankedGrid::candidate);
      add(static_cast<std::size_t>(row - rows_.begin()), options_.most_closely);
    }
    std::vector<std::size_t> large = large_;
    std::ranges::stable_sort(large, {}, [&](std::size_t row) {
      const std::int64_t beyond =
          std::max<std::int64_t>(0, rows_[row].bounds.bytes - budget_bytes_);
      return rows_[row].bounds.seconds +
             options_.seconds_per_byte_beyond * static_cast<double>(beyond);
    });
    const std::size_t most = worth.size() + options_.most_closely;
    for (const std::size_t row : large) {
      const bool known = std::ranges::any_of(worth, [&](std::size_t other) {
        return same_layout(rows_[row].candidate, rows_[other].candidate);
      });
      if (!known) add(row, most);
    }
    return worth;
  }

  void plan_closely() {
    std::vector<std::size_t> rows = worth_a_closer_plan();
    while (!rows.empty()) {
      const auto some = static_cast<std::ptrdiff_t>(
          std::min(rows.size(), as_index(std::max(1, options_.at_once))));
      const std::vector<std::size_t> next(rows.begin(), rows.begin() + some);
      rows.erase(rows.begin(), rows.begin() + some);
      note(result_.candidates, "planning closely " + to_string(rows_[next.front()].candidate));
      std::vector<Planned> planned = plan_together(next, options_.closely);
      // In their order, as if each had waited for the one before.
      for (std::size_t k = 0; k < next.size(); ++k)
        if (may_be_fastest(next[k])) take_closer(next[k], std::move(planned[k]));
      std::erase_if(rows, [&](std::size_t row) { return !may_be_fastest(row); });
    }
    result_.proven = result_.proven && options_.exhaustive;
  }

  void take_closer(std::size_t row, Planned planned) {
    RankedGrid closer = rows_[row];
    try {
      if (planned.failure) std::rethrow_exception(planned.failure);
      if (closer.estimate.bytes == 0) closer.estimate = estimator_.estimate(closer.candidate);
    } catch (const ConfigError& error) {
      result_.unplanned.push_back({closer.candidate, error.what()});
      return;
    }
    ++result_.closely_planned;
    if (!planned.outcome.fits) return;
    closer.outcome = std::move(planned.outcome);
    closer.closely = true;
    take(closer);
  }

  // Whether it can be planned, which was tried.
  bool plan(std::size_t row) {
    RankedGrid& ranked = rows_[row];
    Planned planned = std::move(outcomes_.at(row));
    outcomes_.erase(row);
    try {
      if (planned.failure) std::rethrow_exception(planned.failure);
    } catch (const ConfigError& error) {
      result_.unplanned.push_back({ranked.candidate, error.what()});
      return false;
    }
    ranked.outcome = std::move(planned.outcome);
    ++result_.planned;
    return true;
  }

  void find_leanest() {
    std::stable_sort(large_.begin(), large_.end(), [&](std::size_t a, std::size_t b) {
      return rows_[a].bounds.bytes < rows_[b].bounds.bytes;
    });
    if (large_.size() > most_lean_estimates) large_.resize(most_lean_estimates);
    Queue by_bytes;
    for (const std::size_t row : large_) {
      RankedGrid& candidate = rows_[row];
      if (candidate.outcome.needed_bytes > 0) {
        take_if_leaner(candidate);
        continue;
      }
      try {
        if (candidate.estimate.bytes == 0)
          candidate.estimate = estimator_.estimate(candidate.candidate);
      } catch (const ConfigError&) {
        continue;
      }
      by_bytes.emplace(static_cast<double>(candidate.estimate.bytes), row);
    }
    for (int planned = 0; planned < most_lean_plans && !by_bytes.empty();) {
      const std::size_t row = row_of(by_bytes.top());
      by_bytes.pop();
      plan_at_once(row, by_bytes, [](std::size_t) { return true; });
      if (!plan(row)) continue;
      ++planned;
      take_if_leaner(rows_[row]);
    }
  }

  void take_if_leaner(const RankedGrid& candidate) {
    const std::int64_t known = result_.leanest.outcome.needed_bytes;
    if (known == 0 || candidate.outcome.needed_bytes < known) result_.leanest = candidate;
  }

  GridEstimator& estimator_;
  std::int64_t budget_bytes_;
  const PlanOfGrid& plan_;
  const GridSearchOptions& options_;
  std::vector<RankedGrid> rows_;
  std::vector<std::size_t> fitting_;  // as they were planned
  std::vector<std::size_t> large_;
  Queue bounded_;
  std::map<std::size_t, Planned> outcomes_;  // by row
  GridSearch result_;
  std::int64_t micro_batches_ = 0;  // of what was planned
  double last_wanted_ = std::numeric_limits<double>::infinity();
};

}  // namespace

GridSearch search_grids(const std::vector<GridCandidate>& candidates, GridEstimator& estimator,
                        std::int64_t budget_bytes, const PlanOfGrid& plan,
                        const GridSearchOptions& options) {
  return Search(candidates, estimator, budget_bytes, plan, options).run();
}

}  // namespace garonne::plan
