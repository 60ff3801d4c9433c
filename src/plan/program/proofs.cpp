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

}  // namespace

// A rotated step has an order of its own. That after none, and what remains, follow one another in
// the whole one, whose order and meaning are asked for.
void prove(const Program& program, const ModelGraph& graph) {
  check_order(program);
  if (is_rotated(program)) return prove(as_whole_step(program), graph);
  check_meaning(program, graph);
}

void prove(const Program& program) {
  check_order(program);
  if (is_rotated(program)) return prove(as_whole_step(program));
  check_meaning(program, implied_model(program));
}

}  // namespace garonne::plan
