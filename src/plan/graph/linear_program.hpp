// Linear and mixed-integer programs, minimised. The one place that knows the solver behind it
// (HiGHS); a build without it answers with NotBuiltError.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace garonne::plan {

class LinearProgram {
 public:
  struct Variable {
    double lower = 0;
    double upper = 1;
    double cost = 0;
    bool integer = false;
  };
  struct Row {
    double lower = 0;
    double upper = 0;
    std::vector<std::pair<int, double>> entries;  // variable, coefficient; each variable once
  };

  int add_variable(const Variable& variable);
  // lower <= sum of coefficient * variable <= upper; either may be infinite.
  void add_row(double lower, double upper, std::vector<std::pair<int, double>> entries);

  const std::vector<Variable>& variables() const { return variables_; }
  const std::vector<Row>& rows() const { return rows_; }

 private:
  std::vector<Variable> variables_;
  std::vector<Row> rows_;
};

struct LinearProgramOptions {
  bool relax = false;                         // take integers for reals
  std::vector<std::pair<int, double>> start;  // values of integers of a known solution, or empty
  double time_limit_seconds = 0;              // 0 for none
  std::int64_t most_nodes = 0;                // of branch and bound; 0 for no limit
};

enum class LinearProgramStatus { Optimal, Infeasible, Stopped };

struct LinearProgramAnswer {
  LinearProgramStatus status = LinearProgramStatus::Stopped;
  bool stopped_by_time_limit = false;
  std::vector<double> values;  // of the best solution; empty where there is none
  double objective = 0;        // of `values`
  double bound = 0;            // no solution is cheaper; meaningless where it is infeasible
};

// Whether this build can solve them.
bool has_linear_program_solver();

// One thread, and without a time limit a function of its arguments. Throws NotBuiltError where this
// build has no solver, InternalError where the solver fails.
LinearProgramAnswer solve_linear_program(const LinearProgram& program,
                                         const LinearProgramOptions& options);

}  // namespace garonne::plan
