#include "plan/chain/rotor_table.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/error.hpp"
#include "plan/chain/rotor_frontier.hpp"
#include "plan/chain/rotor_slots.hpp"

namespace garonne::plan {
namespace {

// A tenth of a second or so, and 64 MB.
constexpr std::int64_t most_frontier_steps = 20'000'000;
constexpr std::int64_t most_frontier_points = 4'000'000;

std::int64_t common_divisor(const RotorModel& model) {
  std::int64_t divisor = 0;
  for (int block = 0; block < model.blocks(); ++block) {
    divisor = std::gcd(divisor, model.value(block));
    divisor = std::gcd(divisor, model.value(block + 1));
    divisor = std::gcd(divisor, model.gradients(block, block));
    divisor = std::gcd(divisor, model.pass_need(block, block));
    for (int option = 0; option < model.options(block); ++option) {
      divisor = std::gcd(divisor, model.saved(block, option));
      divisor = std::gcd(divisor, model.chain_need(block, block, option));
    }
  }
  return std::max<std::int64_t>(divisor, 1);
}

std::int64_t slot_of(std::int64_t bytes, std::int64_t slots) {
  return std::max<std::int64_t>(1, (bytes + slots - 1) / slots);
}

std::int64_t choose_slot_bytes(const RotorModel& model, const RotorMinimum& minimum,
                               std::int64_t bytes, const RotorOptions& options) {
  const std::int64_t divisor = common_divisor(model);
  if (options.slots > 0) return std::max(divisor, slot_of(bytes, options.slots));
  const auto fits = [&](std::int64_t slot) {
    return count_cells(model, minimum, bytes, slot) <=
           options.table_bytes / static_cast<std::int64_t>(sizeof(float));
  };
  const double allowed = options.loss * static_cast<double>(bytes);
  std::int64_t slots = 2000;
  std::int64_t slot = std::max(divisor, slot_of(bytes, slots));
  while (slot > divisor && static_cast<double>(rounding_loss(model, slot)) > allowed) {
    slots += slots / 4;
    const std::int64_t finer = std::max(divisor, slot_of(bytes, slots));
    if (!fits(finer)) break;
    slot = finer;
  }
  return slot;
}

}  // namespace

RotorTable::RotorTable(const Chain& chain, std::int64_t maximum_budget_bytes, RotorOptions options)
    : model_(chain), minimum_(model_), maximum_budget_bytes_(maximum_budget_bytes) {
  expect(options.slots >= 0 && maximum_budget_bytes >= 0, "slots and budget are not negative");
  const std::int64_t bytes = maximum_budget_bytes - model_.value(0);
  if (bytes < minimum_.bytes(0, model_.blocks() - 1)) return;
  if (options.slots == 0) {
    auto frontier = RotorFrontier::make(model_, bytes, most_frontier_steps, most_frontier_points);
    if (frontier) {
      table_bytes_ = frontier->memory_bytes();
      values_ = std::make_unique<RotorFrontier>(std::move(*frontier));
      return;
    }
  }
  const std::int64_t slot = choose_slot_bytes(model_, minimum_, bytes, options);
  auto table = std::make_unique<RotorSlots>(model_, bytes, slot);
  slots_ = table->slots();
  table_bytes_ = table->memory_bytes();
  loss_bound_bytes_ = rounding_loss(model_, slot);
  values_ = std::move(table);
}

RotorTable::~RotorTable() = default;
RotorTable::RotorTable(RotorTable&&) noexcept = default;
RotorTable& RotorTable::operator=(RotorTable&&) noexcept = default;

std::int64_t RotorTable::minimum_budget_bytes() const {
  return model_.value(0) + minimum_.bytes(0, model_.blocks() - 1);
}

double RotorTable::loss_bound() const {
  return static_cast<double>(loss_bound_bytes_) /
         static_cast<double>(std::max<std::int64_t>(maximum_budget_bytes_, 1));
}

// Where rounding leaves no answer, the leanest sequence is one. Where there is more memory than the
// table is for, what it says of less can be done, too.
double RotorTable::value(const Interval& interval) const {
  const std::int64_t known = std::min(interval.bytes, maximum_budget_bytes_ - model_.value(0));
  return std::min(values_->excess(interval.first, interval.last, known),
                  minimum_.excess(interval.first, interval.last, interval.bytes));
}

std::optional<std::vector<ChainOperation>> RotorTable::sequence(std::int64_t budget_bytes) const {
  expect(budget_bytes <= maximum_budget_bytes_, "the table ends at its largest budget");
  if (budget_bytes < minimum_budget_bytes()) return std::nullopt;
  return sequence(0, model_.blocks() - 1, budget_bytes - model_.value(0));
}

// Memory is followed in bytes on the way down, so that rounding does not add up.
std::vector<ChainOperation> RotorTable::sequence(int begin, int end, std::int64_t memory) const {
  std::vector<ChainOperation> operations;
  // What is still to do, the next on top; an interval without blocks is the backward of `last`.
  std::vector<Interval> pending = {{begin, end, memory}};
  while (!pending.empty()) {
    const auto [first, last, bytes] = pending.back();
    pending.pop_back();
    if (first > last) {
      operations.push_back({ChainOperationKind::Backward, last});
      continue;
    }
    double best = no_answer;
    int option_taken = -1;
    int leaf_taken = -1;
    for (int option = 0; option < model_.options(first); ++option) {
      if (model_.chain_need(first, last, option) > bytes) continue;
      double seconds = model_.excess(first, option);
      if (first < last) seconds += value({first + 1, last, bytes - model_.saved(first, option)});
      if (seconds < best) {
        best = seconds;
        option_taken = option;
      }
    }
    std::int64_t pass = 0;
    for (int j = first + 1; j <= last; ++j) {
      pass = std::max(pass, model_.pass_need(first, j - 1));
      if (model_.value(last + 1) + pass > bytes) break;
      const double seconds = model_.pass_seconds(first, j) +
                             value({j, last, bytes - model_.value(j)}) +
                             value({first, j - 1, bytes - model_.gradients(j, last)});
      if (seconds < best) {
        best = seconds;
        leaf_taken = j;
      }
    }
    expect(best < no_answer, "an interval above its minimum has a sequence");
    if (leaf_taken >= 0) {
      operations.push_back({ChainOperationKind::ForwardCheckpoint, first});
      for (int block = first + 1; block < leaf_taken; ++block)
        operations.push_back({ChainOperationKind::ForwardDiscard, block});
      pending.push_back({first, leaf_taken - 1, bytes - model_.gradients(leaf_taken, last)});
      pending.push_back({leaf_taken, last, bytes - model_.value(leaf_taken)});
    } else {
      operations.push_back({ChainOperationKind::ForwardKeep, first, option_taken});
      pending.push_back({first + 1, first, 0});
      if (first < last)
        pending.push_back({first + 1, last, bytes - model_.saved(first, option_taken)});
    }
  }
  return operations;
}

}  // namespace garonne::plan
