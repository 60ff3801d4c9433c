#include "plan/program/proofs.hpp"

#include "plan/program/content_check.hpp"
#include "plan/program/implied_model.hpp"
#include "plan/program/model_check.hpp"
#include "plan/program/order_check.hpp"

namespace garonne::plan {
namespace {

void check_meaning(const Program& program, const ModelGraph& graph) {
  check_against_model(program, graph);
  check_contents(program, graph);
}

}  // namespace

void prove(const Program& program, const ModelGraph& graph) {
  check_order(program);
  check_meaning(program, graph);
}

void prove(const Program& program) {
  check_order(program);
  check_meaning(program, implied_model(program));
}

}  // namespace garonne::plan
