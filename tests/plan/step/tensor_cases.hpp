// Steps of tensor ranks, whose passes are divided at their collectives, and what is held of them.
#pragma once

#include <string>
#include <vector>

#include "plan/program/program_interpreter.hpp"
#include "plan/step/tensor_graphs.hpp"

namespace garonne::plan::test {

struct TensorCase {
  std::string name;
  ModelGraph graph;
  StepShape step;
  StepSchedule schedule;
};

// Random models of two tensor ranks and one or two data ranks, by every policy.
std::vector<TensorCase> tensor_cases(unsigned seeds);

// A sum over the tensor group behind one node, in place where `apart` is false.
TensorCase chain_with_a_sum(bool apart);

// `program` as each rank runs it.
std::vector<Program> of_ranks(const TensorCase& one, const Program& program);

Outcome outcome_of(const TensorCase& one, const std::vector<Program>& programs, LaneTiming timing,
                   unsigned seed = 0);

// By every proof, with and without the model, and by replay of all ranks.
void expect_proved(const TensorCase& one, const std::vector<Program>& programs);

// What the proofs say of a rank's Program; empty where they accept it.
std::string refusal(const TensorCase& one, const Program& program);

}  // namespace garonne::plan::test
