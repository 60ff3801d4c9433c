#include "train/report/spent_time.hpp"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "train/setup/model_operations.hpp"

namespace garonne::train {

using nlohmann::ordered_json;

ordered_json time_json(const std::vector<StepMetrics>& rows) {
  double steps = 0;
  double data = 0;
  double checkpoints = 0;
  double validations = 0;
  double between = 0;
  double starting = 0;
  double lost = 0;
  std::int64_t starts = 0;
  std::int64_t lost_steps = 0;
  ordered_json slow_ranks = ordered_json::array();
  std::set<std::int64_t> steps_there;
  for (const StepMetrics& row : rows) {
    steps_there.insert(row.step);
    steps += row.seconds;
    data += row.data_seconds;
    checkpoints += row.checkpoint_seconds;
    validations += row.validation_seconds;
    between += row.between_seconds;
    for (const SlowRankMetrics& slow : row.slow_ranks)
      slow_ranks.push_back(
          {{"step", row.step}, {"rank", slow.rank}, {"place", slow.place}, {"times", slow.times}});
    if (!row.start) continue;
    ++starts;
    starting += row.start->ready_seconds;
    lost_steps += row.start->lost_steps;
    lost += row.start->lost_seconds;
  }
  const double all = steps + checkpoints + validations + between + starting + lost;
  return {{"step_seconds", steps},
          {"data_seconds", data},
          {"checkpoint_seconds", checkpoints},
          {"validation_seconds", validations},
          {"between_seconds", between},
          {"starts", starts},
          {"start_seconds", starting},
          {"lost_steps", lost_steps},
          {"lost_seconds", lost},
          {"missing_steps",
           rows.empty() ? 0 : rows.back().step - static_cast<std::int64_t>(steps_there.size())},
          {"slow_ranks", std::move(slow_ranks)},
          {"training_share", all > 0 ? (steps - data) / all : 0}};
}

ordered_json utilisation_json(const plan::ModelGraph& graph, const ModelWork& work,
                              int tensor_ranks, int ranks, const std::vector<RankProgram>& programs,
                              double step_seconds) {
  const double model = work.operations;
  const double peak_flops = work.device_flops;
  double hardware = model;
  // Of a node that is divided over tensor ranks each runs its part.
  for (const RankProgram& rank : programs)
    hardware += repeated_operations(graph, rank.program) / tensor_ranks;
  const double rank_seconds = step_seconds * ranks;
  const auto share = [&](double operations) {
    return peak_flops > 0 ? ordered_json(operations / rank_seconds / peak_flops)
                          : ordered_json(nullptr);
  };
  return {
      {"model_operations", model},
      {"hardware_operations", programs.empty() ? ordered_json(nullptr) : ordered_json(hardware)},
      {"model_operations_per_second", model / rank_seconds},
      {"peak_operations_per_second",
       peak_flops > 0 ? ordered_json(peak_flops) : ordered_json(nullptr)},
      {"model_utilisation", share(model)},
      {"hardware_utilisation", programs.empty() ? ordered_json(nullptr) : share(hardware)}};
}

}  // namespace garonne::train
