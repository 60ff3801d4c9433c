// What no plan of a step beats where memory is short and links are slow.
#pragma once

#include "plan/model/model_graph.hpp"
#include "plan/offload/offload_search.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// Seconds that every Program takes at least that does what `program` does, in its order, within the
// budget of the request, and moves what is idle to its tiers. `program` keeps everything. At each
// of its places what is over the budget is elsewhere: it has left before, at the rate of the links,
// and comes back behind; what is not elsewhere is made again, for which each node is charged once,
// by `graph`, cheapest bytes first. Null: nothing is made again. Infinite where no plan fits so.
double least_step_seconds(const Program& program, const OffloadRequest& request,
                          const ModelGraph* graph);

}  // namespace garonne::plan
