#include "train/evaluation/evaluation.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <vector>

#include "base/seconds.hpp"
#include "train/workload/program_loads.hpp"

namespace garonne::train {
namespace {

// When ranks that share a validation ask each other whether it is to go on: about once a second.
class GivingUp {
 public:
  GivingUp(const std::function<bool()>& asked, dist::Session& session)
      : asked_(asked), session_(session) {}

  // Before a round; collective over all ranks.
  bool before(std::int64_t round) {
    if (!asked_ || round == 0) return false;
    if (round == 1) {
      const double seconds = session_.all_reduce_max(std::vector{seconds_since(began_)})[0];
      rounds_between_ = seconds < 1 ? static_cast<std::int64_t>(1 / std::max(seconds, 1e-3)) : 1;
    }
    if (round % rounds_between_ != 0) return false;
    return session_.all_reduce_max(std::vector<std::int64_t>{asked_() ? 1 : 0})[0] != 0;
  }

 private:
  const std::function<bool()>& asked_;
  dist::Session& session_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::int64_t rounds_between_ = 1;
};

}  // namespace

std::int64_t validation_micro_batches(const RunConfig& config, std::int64_t validation_samples) {
  return std::min(config.evaluation.batches, validation_samples / config.train.micro_batch);
}

std::vector<double> validation_losses(const Setup& setup, const plan::Program& program,
                                      const exec::RankResources& resources,
                                      const Workload& workload,
                                      const std::shared_ptr<data::Reader>& reader,
                                      const ValidationBatches& batches, dist::Session& session,
                                      std::int64_t& peak_bytes,
                                      const std::function<bool()>& gives_up) {
  const std::int64_t micro_batches = batches.batches();
  const auto ranks = static_cast<std::int64_t>(setup.grid.shape().data);
  const auto mine = static_cast<std::int64_t>(setup.grid.coordinates_of(session.rank()).data);
  const std::int64_t rounds = (micro_batches + ranks - 1) / ranks;
  const auto samples_of = [=](std::int64_t round) {
    // A rank that has nothing left runs along where parameters are gathered.
    const std::int64_t place = round * ranks + mine;
    return batches.samples_of(place < micro_batches ? place : 0);
  };
  const std::int64_t my_rounds =
      mine < micro_batches ? (micro_batches - mine + ranks - 1) / ranks : 0;
  const bool gathers = std::any_of(program.instructions.begin(), program.instructions.end(),
                                   plan::gathers_parameters);
  const std::int64_t runs = gathers ? rounds : my_rounds;
  const auto stream = workload.open(reader, Part::Validation,
                                    {.samples_of = samples_of,
                                     .first_ordinal = 0,
                                     .end_ordinal = runs,
                                     .micro_batches = {0},
                                     .rows = setup.model.rows,
                                     .values = loaded_names(program, setup.model.graph)});
  exec::Executor executor(setup.model, program, resources);
  exec::StepInputs inputs;
  inputs.training = false;
  // The others wait for this rank at exchanges until all know.
  std::optional<IoError> unread;
  inputs.load = [&](int micro_batch) {
    try {
      if (!unread) return stream->next(micro_batch);
    } catch (const IoError& failure) {
      unread = failure;
    }
    return blank_batch(program, setup.model.graph, micro_batch);
  };
  const int loss_stage = stage_with_loss(setup);
  std::vector<double> losses(static_cast<std::size_t>(rounds), 0.0);
  GivingUp giving_up(gives_up, session);
  bool given_up = false;
  for (std::int64_t round = 0; round < rounds; ++round) {
    given_up = giving_up.before(round);
    if (given_up) break;
    if (round >= runs) continue;
    const exec::StepOutputs outputs = executor.run(inputs);
    if (round < my_rounds && !outputs.report.empty())
      losses[static_cast<std::size_t>(round)] = outputs.report[0];
    peak_bytes = std::max(peak_bytes, outputs.peak_bytes);
  }
  session.agree([&] {
    if (unread) throw *unread;
  });
  if (given_up) return {};
  const std::vector<double> all = session.all_gather(losses);
  std::vector<double> in_order;
  for (std::int64_t j = 0; j < micro_batches; ++j) {
    const int owner = setup.grid.rank_of({static_cast<int>(j % ranks), loss_stage, 0});
    in_order.push_back(all[static_cast<std::size_t>(owner * rounds + j / ranks)]);
  }
  return batches.means(in_order);
}

std::optional<double> validation_loss(const Setup& setup, const plan::Program& program,
                                      const exec::RankResources& resources,
                                      const Workload& workload,
                                      const std::shared_ptr<data::Reader>& reader,
                                      std::int64_t micro_batches, dist::Session& session,
                                      std::int64_t& peak_bytes,
                                      const std::function<bool()>& gives_up) {
  const ValidationBatches batches(workload.validation_sources(), micro_batches,
                                  setup.config.train.micro_batch);
  const std::vector<double> means = validation_losses(setup, program, resources, workload, reader,
                                                      batches, session, peak_bytes, gives_up);
  if (means.empty()) return std::nullopt;
  return batches.weighted(means);
}

}  // namespace garonne::train
