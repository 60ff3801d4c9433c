#include "plan/chain/gap_choice.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/index.hpp"

namespace garonne::plan {
namespace {

// What is over the budget counts less where the thing stays for the rest of the step. The source
// has such a factor and does not say how large it is.
constexpr double once_only = 0.5;

class GapChoice {
 public:
  GapChoice(const Chain& chain, const std::vector<ChainOperation>& operations,
            const std::vector<ChainGap>& gaps, std::int64_t budget_bytes, GapRule rule)
      : budget_bytes_(budget_bytes),
        rule_(rule),
        bytes_(chain, operations),
        gaps_(gaps),
        chosen_(gaps_.size(), false) {}

  std::optional<std::vector<ChainGap>> run() {
    while (bytes_.peak() > budget_bytes_) {
      int best = next(rule_ == GapRule::Greedy);
      // Each thing once, unless that is not enough.
      if (best < 0) best = next(false);
      if (best < 0) return std::nullopt;
      bytes_.take(gaps_[as_index(best)]);
      chosen_[as_index(best)] = true;
      order_.push_back(best);
    }
    give_back_the_needless();
    std::vector<ChainGap> gaps;
    for (std::size_t k = 0; k < gaps_.size(); ++k) {
      if (chosen_[k]) gaps.push_back(gaps_[k]);
    }
    return gaps;
  }

 private:
  static auto thing(const ChainGap& gap) { return std::tuple(gap.item, gap.index, gap.made_at); }

  // Of the things that stay, or of all; -1 where nothing takes anything off.
  int next(bool once) const {
    std::set<std::tuple<ChainItem, int, int>> leave;
    std::set<std::tuple<ChainItem, int, int>> seen;
    std::set<std::tuple<ChainItem, int, int>> several;
    for (std::size_t k = 0; k < gaps_.size(); ++k) {
      if (chosen_[k]) leave.insert(thing(gaps_[k]));
      if (!seen.insert(thing(gaps_[k])).second) several.insert(thing(gaps_[k]));
    }
    int best = -1;
    double best_score = 0;
    for (std::size_t k = 0; k < gaps_.size(); ++k) {
      const bool leaves = leave.contains(thing(gaps_[k]));
      if (chosen_[k] || (once && leaves)) continue;
      double score = cover(gaps_[k]);
      if (rule_ == GapRule::Greedy) {
        if (several.contains(thing(gaps_[k]))) score *= once_only;
      } else {
        const bool goes_out = !gaps_[k].clean && !leaves;
        score /= static_cast<double>(gaps_[k].bytes) * (goes_out ? 2 : 1);
      }
      if (score <= best_score) continue;
      best_score = score;
      best = static_cast<int>(k);
    }
    return best;
  }

  double cover(const ChainGap& gap) const {
    double all = 0;
    bytes_.for_parts(gap, [&](int from, int to) {
      for (int place = from; place < to; ++place) {
        const std::int64_t over = bytes_.during(place) - budget_bytes_;
        if (over > 0) all += static_cast<double>(std::min(over, gap.bytes));
      }
    });
    return all;
  }

  // What came later may have made enough room without what came before.
  void give_back_the_needless() {
    for (const int k : order_) {
      const ChainGap& gap = gaps_[as_index(k)];
      bool needless = true;
      bytes_.for_parts(gap, [&](int from, int to) {
        for (int place = from; place < to; ++place)
          needless = needless && bytes_.during(place) + gap.bytes <= budget_bytes_;
      });
      if (!needless) continue;
      bytes_.give_back(gap);
      chosen_[as_index(k)] = false;
    }
  }

  std::int64_t budget_bytes_;
  GapRule rule_;
  GapBytes bytes_;
  std::vector<ChainGap> gaps_;
  std::vector<bool> chosen_;
  std::vector<int> order_;
};

}  // namespace

std::optional<std::vector<ChainGap>> choose_gaps(const Chain& chain,
                                                 const std::vector<ChainOperation>& operations,
                                                 const std::vector<ChainGap>& gaps,
                                                 std::int64_t budget_bytes, GapRule rule) {
  return GapChoice(chain, operations, gaps, budget_bytes, rule).run();
}

std::int64_t bytes_without_gaps(const Chain& chain, const std::vector<ChainOperation>& operations) {
  GapBytes bytes(chain, operations);
  for (const ChainGap& gap : chain_gaps(chain, operations)) bytes.take(gap);
  return bytes.peak();
}

}  // namespace garonne::plan
