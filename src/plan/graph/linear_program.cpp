#include "plan/graph/linear_program.hpp"

#include "base/error.hpp"

#ifdef GARONNE_HAVE_HIGHS
#include <fmt/format.h>
#include <interfaces/highs_c_api.h>

#include <algorithm>
#include <cmath>
#include <memory>
#endif

namespace garonne::plan {

int LinearProgram::add_variable(const Variable& variable) {
  variables_.push_back(variable);
  return static_cast<int>(variables_.size()) - 1;
}

void LinearProgram::add_row(double lower, double upper,
                            std::vector<std::pair<int, double>> entries) {
  rows_.push_back({lower, upper, std::move(entries)});
}

#ifndef GARONNE_HAVE_HIGHS

bool has_linear_program_solver() {
  return false;
}

LinearProgramAnswer solve_linear_program(const LinearProgram&, const LinearProgramOptions&) {
  throw NotBuiltError("HiGHS", "scripts/setup installs it; build again after that");
}

#else

namespace {

struct Destroy {
  void operator()(void* highs) const { Highs_destroy(highs); }
};
using Handle = std::unique_ptr<void, Destroy>;

void expect_done(HighsInt status, const char* what) {
  expect(status != kHighsStatusError, std::string("HiGHS failed: ") + what);
}

// The C interface, since its binary interface does not depend on the compiler of the wheel.
void pass_model(void* highs, const LinearProgram& program, bool relax) {
  std::vector<double> cost;
  std::vector<double> lower;
  std::vector<double> upper;
  std::vector<HighsInt> integrality;
  for (const LinearProgram::Variable& variable : program.variables()) {
    cost.push_back(variable.cost);
    lower.push_back(variable.lower);
    upper.push_back(variable.upper);
    integrality.push_back(variable.integer && !relax ? kHighsVarTypeInteger
                                                     : kHighsVarTypeContinuous);
  }
  std::vector<double> row_lower;
  std::vector<double> row_upper;
  std::vector<HighsInt> start;
  std::vector<HighsInt> columns;
  std::vector<double> coefficients;
  for (const LinearProgram::Row& row : program.rows()) {
    row_lower.push_back(row.lower);
    row_upper.push_back(row.upper);
    start.push_back(static_cast<HighsInt>(columns.size()));
    for (const auto& [variable, coefficient] : row.entries) {
      columns.push_back(variable);
      coefficients.push_back(coefficient);
    }
  }
  start.push_back(static_cast<HighsInt>(columns.size()));
  expect_done(
      Highs_passMip(highs, static_cast<HighsInt>(cost.size()),
                    static_cast<HighsInt>(row_lower.size()), static_cast<HighsInt>(columns.size()),
                    kHighsMatrixFormatRowwise, kHighsObjSenseMinimize, 0, cost.data(), lower.data(),
                    upper.data(), row_lower.data(), row_upper.data(), start.data(), columns.data(),
                    coefficients.data(), integrality.data()),
      "passing the model");
}

void set_options(void* highs, const LinearProgramOptions& options) {
  expect_done(Highs_setBoolOptionValue(highs, "output_flag", 0), "output_flag");
  expect_done(Highs_setIntOptionValue(highs, "threads", 1), "threads");
  expect_done(Highs_setStringOptionValue(highs, "parallel", "off"), "parallel");
  // Rows of bytes are scaled to one: less than a byte of a TiB.
  expect_done(Highs_setDoubleOptionValue(highs, "primal_feasibility_tolerance", 1e-9), "tolerance");
  expect_done(Highs_setDoubleOptionValue(highs, "mip_feasibility_tolerance", 1e-9), "tolerance");
  expect_done(Highs_setDoubleOptionValue(highs, "mip_rel_gap", 0), "mip_rel_gap");
  expect_done(Highs_setDoubleOptionValue(highs, "mip_abs_gap", 1e-7), "mip_abs_gap");
  if (options.time_limit_seconds > 0) {
    expect_done(Highs_setDoubleOptionValue(highs, "time_limit", options.time_limit_seconds),
                "time_limit");
  }
  if (options.most_nodes > 0) {
    const auto nodes = static_cast<HighsInt>(std::min<std::int64_t>(options.most_nodes, INT32_MAX));
    expect_done(Highs_setIntOptionValue(highs, "mip_max_nodes", nodes), "mip_max_nodes");
  }
}

double number_of(void* highs, const char* name) {
  double value = 0;
  expect_done(Highs_getDoubleInfoValue(highs, name, &value), name);
  return value;
}

}  // namespace

bool has_linear_program_solver() {
  return true;
}

LinearProgramAnswer solve_linear_program(const LinearProgram& program,
                                         const LinearProgramOptions& options) {
  const Handle handle(Highs_create());
  void* highs = handle.get();
  set_options(highs, options);
  pass_model(highs, program, options.relax);
  if (!options.start.empty() && !options.relax) {
    std::vector<HighsInt> columns;
    std::vector<double> values;
    for (const auto& [variable, value] : options.start) {
      columns.push_back(variable);
      values.push_back(value);
    }
    expect_done(Highs_setSparseSolution(highs, static_cast<HighsInt>(columns.size()),
                                        columns.data(), values.data()),
                "passing a start");
  }
  expect_done(Highs_run(highs), "running");

  LinearProgramAnswer answer;
  const HighsInt status = Highs_getModelStatus(highs);
  if (status == kHighsModelStatusInfeasible) {
    answer.status = LinearProgramStatus::Infeasible;
    return answer;
  }
  const bool limit = status == kHighsModelStatusTimeLimit ||
                     status == kHighsModelStatusSolutionLimit ||
                     status == kHighsModelStatusIterationLimit;
  expect(status == kHighsModelStatusOptimal || limit,
         fmt::format("HiGHS ended with model status {}", status));
  answer.stopped_by_time_limit = status == kHighsModelStatusTimeLimit;
  if (!limit) answer.status = LinearProgramStatus::Optimal;
  HighsInt has_solution = 0;
  expect_done(Highs_getIntInfoValue(highs, "primal_solution_status", &has_solution), "solution");
  const double objective = number_of(highs, "objective_function_value");
  if (has_solution == kHighsSolutionStatusFeasible && std::isfinite(objective)) {
    answer.values.resize(program.variables().size());
    expect_done(Highs_getSolution(highs, answer.values.data(), nullptr, nullptr, nullptr),
                "reading the solution");
    answer.objective = objective;
  }
  const bool integers =
      !options.relax && std::any_of(program.variables().begin(), program.variables().end(),
                                    [](const auto& variable) { return variable.integer; });
  if (integers) {
    answer.bound = number_of(highs, "mip_dual_bound");
  } else {
    answer.bound = limit ? -HUGE_VAL : objective;
  }
  return answer;
}

#endif

}  // namespace garonne::plan
