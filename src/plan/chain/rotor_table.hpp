// `rotor`: the fastest memory-persistent sequence of a chain (a value or record that is stored
// stays until its backward), for every budget up to the largest from one table. Source:
// rotor_model.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "plan/chain/chain.hpp"
#include "plan/chain/rotor_minimum.hpp"
#include "plan/chain/rotor_model.hpp"
#include "plan/chain/rotor_values.hpp"

namespace garonne::plan {

struct RotorOptions {
  // Pieces into which the budget is cut. 0: exact in bytes where that takes few steps, else as many
  // as keep the loss below `loss`, or as fit into `table_bytes`.
  std::int64_t slots = 0;
  double loss = 0.001;
  std::int64_t table_bytes = 1'000'000'000;
};

class RotorTable {
 public:
  RotorTable(const Chain& chain, std::int64_t maximum_budget_bytes, RotorOptions options = {});
  ~RotorTable();
  RotorTable(RotorTable&&) noexcept;
  RotorTable& operator=(RotorTable&&) noexcept;

  // None below the minimum budget; every budget from there to the maximum has an answer.
  std::optional<std::vector<ChainOperation>> sequence(std::int64_t budget_bytes) const;

  // Of blocks [first, last] from value `first`, which is stored and not counted in `bytes`, nor is
  // what is stored besides; gradient last+1 is. Seconds above the least possible, or no_answer.
  double excess(int first, int last, std::int64_t bytes) const {
    return value({first, last, bytes});
  }
  // The sequence that takes so long; the table ends at its largest budget.
  std::vector<ChainOperation> sequence(int begin, int end, std::int64_t memory) const;

  // The least budget with a persistent sequence, exact whatever the slots.
  std::int64_t minimum_budget_bytes() const;
  // 0 where the table is exact.
  std::int64_t slots() const { return slots_; }
  std::size_t table_bytes() const { return table_bytes_; }
  // The answer at a budget is at least as fast as the persistent optimum at a budget that is so
  // many bytes smaller; `loss_bound` is the share of the maximum budget.
  std::int64_t loss_bound_bytes() const { return loss_bound_bytes_; }
  double loss_bound() const;

 private:
  struct Interval {
    int first;
    int last;
    std::int64_t bytes;
  };
  double value(const Interval& interval) const;

  RotorModel model_;
  RotorMinimum minimum_;
  std::int64_t maximum_budget_bytes_;
  std::unique_ptr<RotorValues> values_;
  std::int64_t slots_ = 0;
  std::size_t table_bytes_ = 0;
  std::int64_t loss_bound_bytes_ = 0;
};

}  // namespace garonne::plan
