#include "plan/chain/copy_layout.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/chain/chain_replay.hpp"

namespace garonne::plan {
namespace {

constexpr double never_done = std::numeric_limits<double>::infinity();

// What the passes of a legal sequence take, one by one.
std::vector<double> operation_seconds(const Chain& chain,
                                      const std::vector<ChainOperation>& operations) {
  std::vector<int> option(chain.blocks.size(), 0);
  std::vector<double> seconds;
  for (const ChainOperation& operation : operations) {
    if (operation.kind == ChainOperationKind::Drop) {
      seconds.push_back(0);
      continue;
    }
    const ChainBlock& block = chain.blocks[as_index(operation.block)];
    int& kept = option[as_index(operation.block)];
    if (operation.kind == ChainOperationKind::ForwardKeep) kept = operation.option;
    if (operation.kind == ChainOperationKind::Backward) {
      seconds.push_back(block.options[as_index(kept)].backward.seconds);
    } else if (operation.kind == ChainOperationKind::ForwardKeep) {
      seconds.push_back(block.options[as_index(kept)].forward.seconds);
    } else {
      seconds.push_back(block.forward.seconds);
    }
  }
  return seconds;
}

enum class ItemPlace { Here, Leaving, Away, Back };

struct Moved {
  ChainGap gap;
  ItemPlace place = ItemPlace::Here;
  double gone_at = never_done;  // the end of its copy out, where that has begun
  double back_at = never_done;
  bool was_away = false;
  bool over = false;  // the gap is
};

// Whether something that has not gone yet may make compute wait so that something else is back
// early.
enum class Hurry { No, Yes };

class Layout {
 public:
  Layout(const Chain& chain, const std::vector<ChainOperation>& operations,
         const std::vector<ChainGap>& gaps, std::int64_t budget_bytes, Hurry hurry)
      : chain_(chain),
        operations_(operations),
        budget_bytes_(budget_bytes),
        hurry_(hurry),
        seconds_(operation_seconds(chain, operations)),
        count_(static_cast<int>(operations.size())),
        now_here_(chain, operations),
        least_(now_here_) {
    for (const double seconds : seconds_)
      seconds_before_.push_back(seconds_before_.back() + seconds);
    for (const ChainGap& gap : gaps) {
      moved_.push_back({gap});
      least_.take(gap);
      if (!gap.crosses_end(count_)) continue;
      moved_.back().place = ItemPlace::Away;
      now_here_.add(0, gap.next_use - count_, -gap.bytes);
      emit(ChainOperationKind::Drop, gap);
    }
    for (std::size_t k = 0; k < moved_.size(); ++k) {
      made_at_[moved_[k].gap.made_at].push_back(k);
      returns_.push_back(k);
    }
    std::stable_sort(returns_.begin(), returns_.end(),
                     [&](std::size_t a, std::size_t b) { return next_use(a) < next_use(b); });
  }

  bool run() {
    if (least_.peak() > budget_bytes_) return false;
    begin_copies_out(-1);
    for (int place = 0; place < count_; ++place) {
      leave_at(place);
      for (const std::size_t k : leaving_in_order())
        if (moved_[k].gone_at <= now_) take_away(k, place);
      while (now_here_.during(place) > budget_bytes_) {
        const std::vector<std::size_t> leaving = leaving_in_order();
        expect(!leaving.empty(), "what is within the budget when all has left is so by leaving");
        take_away(leaving.front(), place);
      }
      bring_back(place);
      for (Moved& one : moved_) {
        if (one.place == ItemPlace::Back && !one.over && next_use_of(one.gap) == place) arrive(one);
        if (one.place == ItemPlace::Leaving && one.gap.next_use == place) stay(one);
      }
      out_.push_back(operations_[as_index(place)]);
      now_ += seconds_[as_index(place)];
      begin_copies_out(place);
    }
    leave_at(count_);
    return true;
  }

  const std::vector<ChainOperation>& operations() const { return out_; }
  std::vector<ChainGap> useful() const {
    std::vector<ChainGap> gaps;
    for (const Moved& one : moved_) {
      if (one.was_away) gaps.push_back(one.gap);
    }
    return gaps;
  }
  bool all_useful() const {
    return std::all_of(moved_.begin(), moved_.end(), [](const Moved& one) { return one.was_away; });
  }

 private:
  int next_use_of(const ChainGap& gap) const {
    return gap.crosses_end(count_) ? gap.next_use - count_ : gap.next_use;
  }
  int next_use(std::size_t k) const { return next_use_of(moved_[k].gap); }

  void emit(ChainOperationKind kind, const ChainGap& gap) {
    out_.push_back({kind, gap.index, -1, gap.item});
  }

  // Of what is made at the place; weights have a copy below already, and so has what has come back.
  void begin_copies_out(int place) {
    const auto made = made_at_.find(place);
    if (made == made_at_.end()) return;
    for (const std::size_t k : made->second) {
      Moved& one = moved_[k];
      if (one.gap.clean) {
        one.gone_at = 0;
        continue;
      }
      const auto key = std::tuple(one.gap.item, one.gap.index, one.gap.made_at);
      const auto before = gone_at_.find(key);
      if (before != gone_at_.end()) {
        one.gone_at = before->second;
        continue;
      }
      emit(ChainOperationKind::CopyOut, one.gap);
      out_free_at_ = std::max(out_free_at_, now_) +
                     static_cast<double>(one.gap.bytes) / chain_.links->out_bytes_per_second;
      one.gone_at = out_free_at_;
      gone_at_[key] = out_free_at_;
    }
  }

  void leave_at(int place) {
    for (Moved& one : moved_) {
      if (one.gap.last_use + 1 != place) continue;
      if (one.gap.crosses_end(count_)) {
        emit(ChainOperationKind::Drop, one.gap);
        now_here_.add(place, count_, -one.gap.bytes);
        one.was_away = true;
      } else if (one.place == ItemPlace::Here) {
        one.place = ItemPlace::Leaving;
      }
    }
  }

  std::vector<std::size_t> leaving_in_order() const {
    std::vector<std::size_t> leaving;
    for (std::size_t k = 0; k < moved_.size(); ++k) {
      if (moved_[k].place == ItemPlace::Leaving) leaving.push_back(k);
    }
    std::stable_sort(leaving.begin(), leaving.end(), [&](std::size_t a, std::size_t b) {
      return moved_[a].gone_at < moved_[b].gone_at;
    });
    return leaving;
  }

  void wait_out(Moved& one) {
    if (one.gap.clean) return;
    const auto key = std::tuple(one.gap.item, one.gap.index, one.gap.made_at);
    if (!waited_.insert({key, true}).second) return;
    emit(ChainOperationKind::WaitOut, one.gap);
    now_ = std::max(now_, one.gone_at);
  }

  void take_away(std::size_t k, int place) {
    Moved& one = moved_[k];
    wait_out(one);
    emit(ChainOperationKind::Drop, one.gap);
    one.place = ItemPlace::Away;
    one.was_away = true;
    now_here_.add(place, one.gap.next_use, -one.gap.bytes);
  }

  // It has not had to go; its copy is in vain, unless it goes later.
  void stay(Moved& one) {
    wait_out(one);
    one.place = ItemPlace::Back;
    one.over = true;
  }

  // What comes back is there from the beginning of its copy. Without hurry, beside what has not
  // gone by then if nothing waits.
  bool has_room(const Moved& one, int place, int use) const {
    std::vector<const Moved*> late;
    for (const Moved& other : moved_) {
      const bool is_here = other.place == ItemPlace::Here || other.place == ItemPlace::Leaving;
      if (hurry_ == Hurry::No && is_here && other.gone_at < never_done && other.gone_at > now_)
        late.push_back(&other);
    }
    for (int q = place; q < use; ++q) {
      std::int64_t bytes = least_.during(q) + one.gap.bytes;
      const double then = now_ + seconds_before_[as_index(q)] - seconds_before_[as_index(place)];
      for (const Moved* other : late) {
        if (other->gap.last_use < q && q < other->gap.next_use && other->gone_at > then)
          bytes += other->gap.bytes;
      }
      if (bytes > budget_bytes_) return false;
    }
    return true;
  }

  void bring_back(int place) {
    for (const std::size_t k : returns_) {
      Moved& one = moved_[k];
      const int use = next_use(k);
      if (use < place || one.place == ItemPlace::Back || one.over) continue;
      if (one.place != ItemPlace::Away) {
        // In the order of their uses, so that none is in the way of an earlier one.
        if (one.place == ItemPlace::Leaving && use > place) return;
        continue;
      }
      if (use > place && !has_room(one, place, use)) return;
      if (use > place && !make_room(one, place)) return;
      begin_copy_in(one, place, use);
    }
  }

  // Beside what is there now.
  bool make_room(const Moved& one, int place) {
    while (now_here_.during(place) + one.gap.bytes > budget_bytes_) {
      const std::vector<std::size_t> leaving = leaving_in_order();
      if (leaving.empty() || hurry_ == Hurry::No) return false;
      take_away(leaving.front(), place);
    }
    return true;
  }

  void begin_copy_in(Moved& one, int place, int use) {
    emit(ChainOperationKind::CopyIn, one.gap);
    in_free_at_ = std::max(in_free_at_, now_) +
                  static_cast<double>(one.gap.bytes) / chain_.links->in_bytes_per_second;
    one.back_at = in_free_at_;
    one.place = ItemPlace::Back;
    now_here_.add(place, use, one.gap.bytes);
    least_.add(place, use, one.gap.bytes);
  }

  void arrive(Moved& one) {
    emit(ChainOperationKind::WaitIn, one.gap);
    now_ = std::max(now_, one.back_at);
    one.over = true;
  }

  const Chain& chain_;
  const std::vector<ChainOperation>& operations_;
  std::int64_t budget_bytes_;
  Hurry hurry_;
  std::vector<double> seconds_;
  std::vector<double> seconds_before_ = {0};
  int count_;
  GapBytes now_here_;  // with what is away now, until its next use
  GapBytes least_;     // with all away that is to be
  std::vector<Moved> moved_;
  std::vector<std::size_t> returns_;
  std::map<int, std::vector<std::size_t>> made_at_;
  std::map<std::tuple<ChainItem, int, int>, double> gone_at_;
  std::map<std::tuple<ChainItem, int, int>, bool> waited_;
  double now_ = 0;
  double out_free_at_ = 0;
  double in_free_at_ = 0;
  std::vector<ChainOperation> out_;
};

}  // namespace

std::optional<CopiedSequence> lay_out_copies(const Chain& chain,
                                             const std::vector<ChainOperation>& operations,
                                             const std::vector<ChainGap>& gaps,
                                             std::int64_t budget_bytes) {
  std::optional<CopiedSequence> best;
  for (const Hurry hurry : {Hurry::No, Hurry::Yes}) {
    std::vector<ChainGap> chosen = gaps;
    while (true) {
      Layout layout(chain, operations, chosen, budget_bytes, hurry);
      if (!layout.run()) break;
      if (!layout.all_useful()) {
        chosen = layout.useful();
        continue;
      }
      const ChainReplay replay = replay_chain(chain, layout.operations());
      expect(replay.peak_bytes <= budget_bytes, "a layout stays within its budget");
      if (!best || replay.seconds < best->seconds) best = {layout.operations(), replay.seconds};
      break;
    }
  }
  return best;
}

}  // namespace garonne::plan
