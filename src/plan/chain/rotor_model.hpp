// The terms of the recursion over intervals of a chain that memory-persistent solvers share.
//
// An interval [first, last] is solved from "value `first` is stored, gradient last+1 is live" to
// "gradient `first` is live". Its memory m counts everything made meanwhile and gradient last+1,
// but not value `first` nor what is stored outside. There are two ways to start:
//  leaf j:       pass through blocks first..j-1 without keeping, store value j, solve [j, last],
//                then [first, j-1] from value `first` again;
//  chain k:      keep block `first` with option k, solve [first+1, last], run the backward.
// Source: Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, "Optimal checkpointing for
// heterogeneous chains" (ACM TOMS 2024); options per block as in Rockmate (ICML 2023).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/index.hpp"
#include "plan/chain/chain.hpp"

namespace garonne::plan {

class RotorModel {
 public:
  explicit RotorModel(const Chain& chain);

  int blocks() const { return blocks_; }
  int options(int block) const { return static_cast<int>(options_[as_index(block)].size()); }

  // Bytes.
  std::int64_t value(int index) const { return value_[as_index(index)]; }
  std::int64_t saved(int block, int option) const {
    return options_[as_index(block)][as_index(option)].saved;
  }
  // Parameter gradients that the backwards of blocks [first, last] leave.
  std::int64_t gradients(int first, int last) const {
    return gradient_sum_[as_index(last + 1)] - gradient_sum_[as_index(first)];
  }
  // What passing through `block` needs beside gradient last+1, when the interval starts at `first`.
  std::int64_t pass_need(int first, int block) const {
    return pass_need_[as_index(block)] - (block == first ? value_[as_index(block)] : 0);
  }
  // What the operations of block `first` itself need in a chain: its forward runs beside gradient
  // last+1, its backward beside the parameter gradients of first+1..last.
  std::int64_t chain_need(int first, int last, int option) const {
    const Option& kept = options_[as_index(first)][as_index(option)];
    const std::int64_t forward = value_[as_index(last + 1)] + kept.forward_need;
    const std::int64_t backward = kept.backward_need + gradients(first + 1, last);
    return forward > backward ? forward : backward;
  }

  // Seconds. What each block costs at least is left out of all sums, so that rounding concerns only
  // what is added to it; `least_seconds` is the sum of it.
  double excess(int block, int option) const {
    return options_[as_index(block)][as_index(option)].excess;
  }
  double pass_seconds(int first, int end) const {
    return pass_sum_[as_index(end)] - pass_sum_[as_index(first)];
  }
  double least_seconds() const { return least_seconds_; }

 private:
  struct Option {
    std::int64_t saved;
    std::int64_t forward_need;
    std::int64_t backward_need;
    double excess;
  };

  int blocks_ = 0;
  std::vector<std::int64_t> value_;
  std::vector<std::int64_t> gradient_sum_;
  std::vector<std::int64_t> pass_need_;
  std::vector<double> pass_sum_;
  std::vector<std::vector<Option>> options_;
  double least_seconds_ = 0;
};

}  // namespace garonne::plan
