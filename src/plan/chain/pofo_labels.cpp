#include "plan/chain/pofo_labels.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/chain/rotor_minimum.hpp"

namespace garonne::plan {
namespace {

// Labels that are tried from in all, about; lists are cut so that there are no more.
constexpr std::int64_t most_steps = 40'000'000;
constexpr std::size_t most_labels = 512;
constexpr std::size_t least_labels = 8;
constexpr std::size_t kept_shares = 8;

// How a block and those of its stretch are run.
struct Move {
  int option = -1;          // kept so; -1: a stretch
  int last = -1;            // of the stretch
  std::int64_t memory = 0;  // of the stretch's backward
  bool below = false;       // its input
};

struct Label {
  double excess = 0;       // seconds above the least of all blocks so far
  double waiting_out = 0;  // bytes that are to leave and have not
  double needed_back = 0;  // bytes that are there again when the backward comes here
  std::int64_t kept = 0;   // bytes of inputs that stay
  Move move;
  int from = -1;  // the label before: position, form, place
  int from_form = -1;
  int from_place = -1;

  bool is_no_worse_than(const Label& other) const {
    return excess <= other.excess && waiting_out <= other.waiting_out &&
           needed_back <= other.needed_back && kept <= other.kept;
  }
};

// Numbers of a chain that labels ask for.
class PofoModel {
 public:
  explicit PofoModel(const Chain& chain) : chain_(chain), blocks_(at_count(chain)) {
    for (const ChainBlock& block : chain.blocks) {
      double least = std::numeric_limits<double>::infinity();
      for (const ChainOption& option : block.options)
        least = std::min(least, option.forward.seconds + option.backward.seconds);
      least_.push_back(least);
      least_before_.push_back(least_before_.back() + least);
      forward_before_.push_back(forward_before_.back() + block.forward.seconds);
      gradients_before_.push_back(gradients_before_.back() + block.gradient_bytes);
    }
  }

  int blocks() const { return blocks_; }
  const ChainBlock& block(int index) const { return chain_.blocks[as_index(index)]; }
  std::int64_t value(int index) const { return chain_value_bytes(chain_, index); }
  double excess(int index, const ChainOption& option) const {
    return option.forward.seconds + option.backward.seconds - least_[as_index(index)];
  }
  double least(int first, int last) const {
    return least_before_[as_index(last + 1)] - least_before_[as_index(first)];
  }
  double least_seconds() const { return least_before_.back(); }
  double forward(int first, int end) const {
    return forward_before_[as_index(end)] - forward_before_[as_index(first)];
  }
  std::int64_t gradients_behind(int last) const {
    return gradients_before_.back() - gradients_before_[as_index(last + 1)];
  }
  // What holds the input of a block: itself (form 0), or the saved bytes of option form - 1.
  std::int64_t input(int index, int form) const {
    return form == 0 ? value(index) : block(index - 1).options[as_index(form - 1)].saved_bytes;
  }
  int forms(int index) const {
    return index == 0 ? 1 : 1 + static_cast<int>(block(index - 1).options.size());
  }

  // Beside the input and what is kept, waits to leave or is back.
  std::int64_t forward_need(const ChainOption& option) const {
    return value(blocks_) + option.saved_bytes + option.forward.transient_bytes;
  }
  std::int64_t backward_need(int index, const ChainOption& option) const {
    return option.saved_bytes + value(index + 1) + value(index) + block(index).gradient_bytes +
           gradients_behind(index) + option.backward.transient_bytes;
  }
  // Of passing `index` in a stretch from `first`.
  std::int64_t pass_need(int first, int index) const {
    return value(blocks_) + (index > first ? value(index) : 0) + value(index + 1) +
           block(index).forward.transient_bytes;
  }

 private:
  static int at_count(const Chain& chain) { return static_cast<int>(chain.blocks.size()); }

  const Chain& chain_;
  int blocks_;
  std::vector<double> least_;
  std::vector<double> least_before_ = {0};
  std::vector<double> forward_before_ = {0};
  std::vector<std::int64_t> gradients_before_ = {0};
};

// The sequence of moves, each from its first block, and the gaps of their inputs.
PofoSkeleton lay_out_moves(const Chain& chain, const RotorTable& rotor,
                           const std::vector<std::pair<int, Move>>& moves) {
  PofoSkeleton skeleton;
  for (const auto& [first, move] : moves) {
    if (move.option >= 0) {
      skeleton.operations.push_back({ChainOperationKind::ForwardKeep, first, move.option});
      continue;
    }
    skeleton.operations.push_back({ChainOperationKind::ForwardCheckpoint, first});
    for (int block = first + 1; block <= move.last; ++block)
      skeleton.operations.push_back({ChainOperationKind::ForwardDiscard, block});
  }
  const int turn = static_cast<int>(skeleton.operations.size());
  for (auto move = moves.rbegin(); move != moves.rend(); ++move) {
    const int first = move->first;
    if (move->second.option >= 0) {
      skeleton.operations.push_back({ChainOperationKind::Backward, first});
      continue;
    }
    const auto again = rotor.sequence(first, move->second.last, move->second.memory);
    skeleton.operations.insert(skeleton.operations.end(), again.begin(), again.end());
  }
  for (const ChainGap& gap : chain_gaps(chain, skeleton.operations)) {
    if (gap.item == ChainItem::Weights || gap.last_use >= turn || gap.next_use < turn) continue;
    for (std::size_t k = 0; k < moves.size(); ++k) {
      const auto& [first, move] = moves[k];
      const bool plain = k == 0 || moves[k - 1].second.option < 0;
      if (move.below && gap.item == (plain ? ChainItem::Value : ChainItem::Saved) &&
          gap.index == (plain ? first : first - 1))
        skeleton.gaps.push_back(gap);
    }
  }
  return skeleton;
}

class Labels {
 public:
  Labels(const Chain& chain, std::int64_t budget_bytes, const RotorTable& rotor,
         double upper_seconds)
      : chain_(chain),
        model_(chain),
        rotor_(rotor),
        budget_(budget_bytes),
        most_excess_(upper_seconds - model_.least_seconds()) {
    std::int64_t tries = 1;
    for (int i = 0; i <= model_.blocks(); ++i) {
      lists_.emplace_back(as_index(model_.forms(i)));
      if (i == model_.blocks()) continue;
      const auto keeps = static_cast<std::int64_t>(model_.block(i).options.size());
      tries += model_.forms(i) * 2 * (keeps + 3 * (model_.blocks() - i));
    }
    most_ = std::clamp(static_cast<std::size_t>(most_steps / tries), least_labels, most_labels);
  }

  PofoChoice run(std::size_t most_skeletons) {
    lists_[0][0].push_back({});
    for (int i = 0; i < model_.blocks(); ++i) {
      for (int form = 0; form < model_.forms(i); ++form) {
        cut(lists_[as_index(i)][as_index(form)]);
        for (std::size_t k = 0; k < lists_[as_index(i)][as_index(form)].size(); ++k)
          extend(i, form, static_cast<int>(k));
      }
    }
    PofoChoice choice;
    choice.complete = complete_;
    for (const Label& label : ends(most_skeletons))
      choice.skeletons.push_back(lay_out_moves(chain_, rotor_, moves_to(label)));
    return choice;
  }

 private:
  using List = std::vector<Label>;

  double out_rate() const { return chain_.links->out_bytes_per_second; }
  double in_rate() const { return chain_.links->in_bytes_per_second; }

  void extend(int first, int form, int place) {
    const Label label = lists_[as_index(first)][as_index(form)][as_index(place)];
    Label next = label;
    next.from = first;
    next.from_form = form;
    next.from_place = place;
    const int options = static_cast<int>(model_.block(first).options.size());
    for (int option = 0; option < options; ++option) keep(label, next, first, form, option);
    // The last block is kept: nothing comes before its backward.
    double must_leave = 0;
    for (int last = first; last + 1 < model_.blocks(); ++last) {
      const std::int64_t room =
          budget_ - label.kept - model_.input(first, form) - model_.pass_need(first, last);
      if (room < 0) break;
      must_leave = std::max(must_leave, label.waiting_out - static_cast<double>(room) -
                                            out_rate() * model_.forward(first, last));
      pass(label, next, first, form, last, must_leave);
    }
  }

  void keep(const Label& label, Label next, int first, int form, int option) {
    const ChainOption& kept = model_.block(first).options[as_index(option)];
    const std::int64_t input = model_.input(first, form);
    const std::int64_t room_out = budget_ - label.kept - input - model_.forward_need(kept);
    const std::int64_t room_in = budget_ - label.kept - input - model_.backward_need(first, kept);
    if (room_out < 0 || room_in < 0) return;
    const double must_leave = std::max(0.0, label.waiting_out - static_cast<double>(room_out));
    const double must_wait = std::max(0.0, label.needed_back - static_cast<double>(room_in));
    next.move = {option, -1, 0, false};
    next.excess += model_.excess(first, kept) + must_leave / out_rate() + must_wait / in_rate();
    offer_both(next, input, kept.forward.seconds * out_rate() + must_leave,
               kept.backward.seconds * in_rate() + must_wait, first + 1, 1 + option);
  }

  void pass(const Label& label, const Label& next, int first, int form, int last,
            double must_leave) {
    const std::int64_t input = model_.input(first, form);
    const double passed = model_.forward(first, last + 1);
    const std::int64_t memory = budget_ - label.kept - input - model_.gradients_behind(last);
    const auto back = static_cast<std::int64_t>(label.needed_back);
    std::int64_t tried = -1;
    for (const std::int64_t bytes : {memory - back, memory - back / 2, memory}) {
      if (bytes == tried || bytes < 0) continue;
      tried = bytes;
      const double again = rotor_.excess(first, last, bytes);
      if (again == no_answer) continue;
      const double must_wait =
          std::max(0.0, label.needed_back - static_cast<double>(memory - bytes));
      Label one = next;
      one.move = {-1, last, bytes, false};
      one.excess += passed + again + must_leave / out_rate() + must_wait / in_rate();
      offer_both(one, input, passed * out_rate() + must_leave,
                 (model_.least(first, last) + again) * in_rate() + must_wait, last + 1, 0);
    }
  }

  // With the input there all the time, or below in between.
  void offer_both(Label next, std::int64_t input, double leaves, double comes, int position,
                  int form) {
    const double waiting_out = next.waiting_out;
    const double needed_back = std::max(0.0, next.needed_back - comes);
    const std::int64_t kept = next.kept;
    next.kept = kept + input;
    next.waiting_out = std::max(0.0, waiting_out - leaves);
    next.needed_back = needed_back;
    offer(next, position, form);
    if (input == 0) return;
    next.move.below = true;
    next.kept = kept;
    next.waiting_out = std::max(0.0, waiting_out + static_cast<double>(input) - leaves);
    next.needed_back = needed_back + static_cast<double>(input);
    offer(next, position, form);
  }

  void offer(const Label& label, int position, int form) {
    if (!(label.excess < most_excess_)) return;
    List& list = lists_[as_index(position)][as_index(form)];
    for (const Label& other : list) {
      if (other.is_no_worse_than(label)) return;
    }
    std::erase_if(list, [&](const Label& other) { return label.is_no_worse_than(other); });
    list.push_back(label);
    if (list.size() > 2 * most_) cut(list);
  }

  // What a label comes to if what is under way is waited for.
  double total(const Label& label) const {
    return label.excess + std::max(label.waiting_out / out_rate(), label.needed_back / in_rate());
  }

  // The best of all are not better for what comes if they keep much: of each share of the budget
  // that stays in use there are some.
  void cut(List& list) {
    std::sort(list.begin(), list.end(), [&](const Label& a, const Label& b) {
      return std::pair(total(a), a.kept) < std::pair(total(b), b.kept);
    });
    if (list.size() <= most_) return;
    complete_ = false;
    std::vector<std::pair<std::size_t, std::size_t>> order;  // round, place
    std::vector<std::size_t> seen(kept_shares, 0);
    for (std::size_t k = 0; k < list.size(); ++k) {
      const auto share = static_cast<std::size_t>(static_cast<double>(kept_shares) *
                                                  static_cast<double>(list[k].kept) /
                                                  static_cast<double>(budget_ + 1));
      order.emplace_back(seen[std::min(share, kept_shares - 1)]++, k);
    }
    std::sort(order.begin(), order.end());
    List left;
    for (std::size_t k = 0; k < most_; ++k) left.push_back(list[order[k].second]);
    list = std::move(left);
  }

  std::vector<Label> ends(std::size_t most) const {
    std::vector<Label> all;
    for (const List& list : lists_.back()) all.insert(all.end(), list.begin(), list.end());
    std::stable_sort(all.begin(), all.end(),
                     [&](const Label& a, const Label& b) { return total(a) < total(b); });
    if (all.size() > most) all.resize(most);
    return all;
  }

  std::vector<std::pair<int, Move>> moves_to(const Label& end) const {
    std::vector<std::pair<int, Move>> moves;
    for (const Label* label = &end; label->from >= 0;
         label = &lists_[as_index(label->from)][as_index(label->from_form)]
                        [as_index(label->from_place)])
      moves.emplace_back(label->from, label->move);
    std::reverse(moves.begin(), moves.end());
    return moves;
  }

  const Chain& chain_;
  PofoModel model_;
  const RotorTable& rotor_;
  std::int64_t budget_;
  double most_excess_;
  std::size_t most_ = 0;
  bool complete_ = true;
  std::vector<std::vector<List>> lists_;  // by position and form
};

}  // namespace

PofoChoice choose_pofo(const Chain& chain, std::int64_t budget_bytes, const RotorTable& rotor,
                       double upper_seconds, std::size_t most_skeletons) {
  expect(chain.links.has_value(), "what is moved has links");
  return Labels(chain, budget_bytes, rotor, upper_seconds).run(most_skeletons);
}

PofoLeanest leanest_pofo(const Chain& chain) {
  const PofoModel model(chain);
  const RotorModel rotor_model(chain);
  const RotorMinimum minimum(rotor_model);
  struct Lean {
    std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
    Move move;
    int from = -1;
    int from_form = -1;
  };
  std::vector<std::vector<Lean>> lists;
  for (int i = 0; i <= model.blocks(); ++i) lists.emplace_back(as_index(model.forms(i)));
  lists[0][0].bytes = 0;
  for (int i = 0; i < model.blocks(); ++i) {
    for (int form = 0; form < model.forms(i); ++form) {
      const std::int64_t so_far = lists[as_index(i)][as_index(form)].bytes;
      if (so_far == std::numeric_limits<std::int64_t>::max()) continue;
      const std::int64_t input = model.input(i, form);
      const auto offer = [&](std::int64_t need, const Move& move, int position, int next_form) {
        const std::int64_t bytes = std::max(so_far, input + need);
        Lean& lean = lists[as_index(position)][as_index(next_form)];
        if (bytes < lean.bytes) lean = {bytes, move, i, form};
      };
      for (int k = 0; k < static_cast<int>(model.block(i).options.size()); ++k) {
        const ChainOption& option = model.block(i).options[as_index(k)];
        offer(std::max(model.forward_need(option), model.backward_need(i, option)),
              {k, -1, 0, true}, i + 1, 1 + k);
      }
      std::int64_t need = 0;
      for (int last = i; last + 1 < model.blocks(); ++last) {
        need = std::max(need, model.pass_need(i, last));
        const std::int64_t again = minimum.bytes(i, last);
        offer(std::max(need, again + model.gradients_behind(last)), {-1, last, again, true},
              last + 1, 0);
      }
    }
  }
  int form = 0;
  for (int k = 1; k < model.forms(model.blocks()); ++k) {
    if (lists.back()[as_index(k)].bytes < lists.back()[as_index(form)].bytes) form = k;
  }
  PofoLeanest leanest;
  leanest.bytes = lists.back()[as_index(form)].bytes;
  std::vector<std::pair<int, Move>> moves;
  for (int i = model.blocks(); i > 0;) {
    const Lean& lean = lists[as_index(i)][as_index(form)];
    moves.emplace_back(lean.from, lean.move);
    form = lean.from_form;
    i = lean.from;
  }
  std::reverse(moves.begin(), moves.end());
  const RotorTable rotor(chain, chain.input_bytes + minimum.bytes(0, model.blocks() - 1), {});
  leanest.skeleton = lay_out_moves(chain, rotor, moves);
  return leanest;
}

}  // namespace garonne::plan
