// What a run spent its time and its devices on, for the report.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "plan/model/model_graph.hpp"
#include "train/plans/step_rates.hpp"
#include "train/report/report_program.hpp"
#include "train/run/metrics_file.hpp"

namespace garonne::train {

// Seconds of steps, of them waiting for data, of checkpoints, validations, what else is between
// steps, starts, and of steps that were done again after a restart, how many steps have no row, and
// which ranks were slow for long; the key `time` of "garonne.report". Rows of earlier versions say
// nothing of most.
nlohmann::ordered_json time_json(const std::vector<StepMetrics>& rows);

// Operations of a step and the share that is used of a device's rate, where `work` has one:
//   model FLOP utilisation = operations of the model a step / (seconds a step · ranks · peak)
// and hardware FLOP utilisation with what runs again counted, too (Korthikanti et al., "Reducing
// Activation Recomputation in Large Transformer Models", 2022). `graph`: of the whole model, for a
// micro-batch; `work`: of a step; `programs`: of all ranks, may be none. The key `utilisation`.
nlohmann::ordered_json utilisation_json(const plan::ModelGraph& graph, const ModelWork& work,
                                        int tensor_ranks, int ranks,
                                        const std::vector<RankProgram>& programs,
                                        double step_seconds);

}  // namespace garonne::train
