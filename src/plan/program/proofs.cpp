#include "plan/program/proofs.hpp"

#include "plan/program/content_check.hpp"
#include "plan/program/model_check.hpp"
#include "plan/program/order_check.hpp"

namespace garonne::plan {

void prove(const Program& program, const ModelGraph& graph) {
  check_order(program);
  check_against_model(program, graph);
  check_contents(program, graph);
}

}  // namespace garonne::plan
