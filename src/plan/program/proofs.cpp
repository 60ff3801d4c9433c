#include "plan/program/proofs.hpp"

#include "plan/program/content_check.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/model_check.hpp"
#include "plan/program/order_check.hpp"
#include "plan/program/rotated_step.hpp"

namespace garonne::plan {
namespace {

void check_meaning(const Program& program, const ModelGraph& graph) {
  check_against_model(program, graph);
  check_contents(program, graph);
}

// Of a rotated step also that after none, and that of what remains, which follow one another in the
// whole one.
Program ordered(const Program& program) {
  check_order(program);
  if (!is_rotated(program)) return program;
  Program whole = as_whole_step(program);
  check_order(whole);
  return whole;
}

}  // namespace

void prove(const Program& program, const ModelGraph& graph) {
  check_meaning(ordered(program), graph);
}

void prove(const Program& program) {
  const Program whole = ordered(program);
  check_meaning(whole, implied_model(whole));
}

}  // namespace garonne::plan
