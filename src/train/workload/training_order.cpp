#include "train/workload/training_order.hpp"

#include <vector>

#include "data/sample_order.hpp"
#include "train/workload/program_loads.hpp"

namespace garonne::train {

StreamOrder training_order(const RunConfig& config, const Workload& workload,
                           const plan::Program& program, const nn::Model& model,
                           std::int64_t first_step) {
  const data::SampleOrder order(workload.samples(Part::Training),
                                static_cast<std::uint64_t>(config.train.seed),
                                workload.shuffle_block());
  const std::int64_t batch = config.train.global_batch;
  const std::int64_t micro = config.train.micro_batch;
  const std::int64_t per_rank = program.micro_batches;
  const std::int64_t mine = program.coordinates.data;
  // A stage begins its micro-batches in the order of its schedule.
  const std::vector<int> loads = loaded_micro_batches(program);
  const auto samples_of = [=](std::int64_t ordinal) {
    const std::int64_t step = ordinal / per_rank;
    const std::int64_t number = loads[static_cast<std::size_t>(ordinal % per_rank)];
    const std::int64_t first = step * batch + (mine * per_rank + number) * micro;
    std::vector<std::int64_t> samples;
    for (std::int64_t i = 0; i < micro; ++i) samples.push_back(order.sample(first + i));
    return samples;
  };
  return {.samples_of = samples_of,
          .first_ordinal = (first_step - 1) * per_rank,
          .end_ordinal = config.train.steps * per_rank,
          .micro_batches = loads,
          .rows = model.rows,
          .values = loaded_names(program, model.graph)};
}

}  // namespace garonne::train
