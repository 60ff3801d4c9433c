#include "plan/stage/policy.hpp"

namespace garonne::plan {

StageSolver keep_all_policy() {
  return make_policy("keep-all", "keep every record from forward to backward: fastest, most memory",
                     [](const ModelGraph& graph) -> std::vector<NodeSchedule> {
                       return {recompute_on_demand(graph, keep_everything(graph))};
                     });
}

}  // namespace garonne::plan
