// Checkmate's program for a graph of tasks that run forward any number of times or once.
//
// Against the published formulation: what is live is not a recurrence with products (its "free"
// variables) but falls from reader to reader of a value, A_s >= A_(s+1), which needs no big
// constants and makes retention and liveness follow from the runs alone, so that only runs are
// integers. Transients count, values are updated in place, and what is dead in a stage for good has
// no variables.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "plan/graph/computation_graph.hpp"
#include "plan/graph/linear_program.hpp"

namespace garonne::plan {

class CheckmateModel {
 public:
  CheckmateModel(const ComputationGraph& graph, std::int64_t budget_bytes);

  const LinearProgram& program() const { return program_; }
  // Costs of the program are seconds times this.
  double scale() const { return scale_; }

  TaskSchedule schedule(const std::vector<double>& values) const;
  // Values of the integers for a schedule, brought into the order of the class; whether it still
  // fits is for replay to say. Absent where it runs something that this class does not need.
  std::optional<TaskSchedule> in_class(const TaskSchedule& schedule) const;
  std::vector<std::pair<int, double>> start(const TaskSchedule& in_class) const;

  // Values kept over the start of stage t with at least `threshold` in a relaxed solution,
  // completed by the fewest runs. None where no option of a task makes all that is wanted of it.
  std::optional<TaskSchedule> rounded(const std::vector<double>& values, double threshold) const;

 private:
  using Entries = std::vector<std::pair<int, double>>;
  // A number of the program that is a variable or, where `variable` is none, a constant.
  struct Term {
    int variable = none;
    double constant = 0;
  };
  struct Stage {
    std::vector<std::vector<int>> runs;  // by task and option; empty where it cannot run
    std::vector<int> kept;               // by value, over the start of the stage; or none
  };
  static constexpr int none = -1;

  void find_useful();
  void add_variables();
  void add_stage(int t);
  void add_runs(int t);
  std::vector<Term> add_lifetime(int t, int value, const std::vector<int>& readers);
  Term add_made(int t, int value, Term after);
  Entries makers_of(int t, int value) const;
  Entries readers_of(int t, int value, int reader) const;
  int rounded_reader(int t, const std::vector<double>& values) const;
  Term kept_after(int t, int value) const;
  void at_least(Term greater, const Entries& smaller);

  const ComputationGraph& graph_;
  double budget_;
  double scale_ = 1;
  LinearProgram program_;
  std::vector<int> maker_;                 // by value; none for what is live at the start
  std::vector<std::vector<int>> readers_;  // by value, updates included
  std::vector<std::vector<bool>> useful_;  // by stage and task: may a run still serve anything
  std::vector<std::vector<bool>>
      wanted_;  // by stage and value: may it still be read in or after it
  std::vector<Stage> stages_;
};

}  // namespace garonne::plan
