// Ranks that need longer for their own work than those that do the same, step after step.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "dist/session.hpp"
#include "exec/executor.hpp"
#include "plan/program/program.hpp"

namespace garonne::train {

struct SlowRank {
  int rank = 0;
  double times = 0;  // the median of its peers, as the median of the windows in which it was slow
  int windows = 0;   // of the last ten, in which it was
};

// The rule. A rank is slow in a window where it took more than 1.2 times the median of the other
// ranks of its group, and a millisecond more; it is named, once, when it was in eight of the last
// ten windows.
class SlowRankRule {
 public:
  // `groups`: by rank, which ranks do the same work; a rank alone in its group is never named.
  explicit SlowRankRule(std::vector<int> groups);

  // Seconds of own work a step, by rank, of the next window. Those that are to be named now.
  std::vector<SlowRank> take(const std::vector<double>& seconds);

 private:
  std::vector<int> groups_;
  std::vector<std::deque<double>> times_;  // by rank: of the last windows; 0 = not slow
  std::vector<bool> named_;
};

// Seconds of a step in which this rank did its own work: instructions on Compute but for those that
// wait for other ranks or for samples.
double own_seconds(const plan::Program& program,
                   const std::vector<plan::Measurement>& measurements);

// Watches a run by the rule, in windows of ten steps, of which the median counts.
class SlowRankWatch {
 public:
  struct Found {
    SlowRank rank;
    std::string place;  // "[rank 1/4 node07 data 1, pipeline 0, tensor 0]"
  };

  // Collective over all ranks. `stage`: which the ranks of a stage of the pipeline share.
  SlowRankWatch(const plan::Program& program, int stage, dist::Session& session);

  // After each step; ranks tell each other after every tenth. Those found now, on rank 0.
  // Collective over all ranks. Steps that a GPU carries out as one graph have no times of their
  // own: what is watched there are those before.
  std::vector<Found> after_step(const exec::StepOutputs& outputs);

 private:
  const plan::Program& program_;
  dist::Session& session_;
  std::vector<std::string> places_;  // on rank 0
  SlowRankRule rule_;
  std::vector<double> window_;  // of this rank, a step
};

// A sentence for people.
std::string describe(const SlowRankWatch::Found& found);

}  // namespace garonne::train
