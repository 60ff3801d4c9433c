#include "train/trainer.hpp"

#include "train/training_run.hpp"

namespace garonne::train {

ExitCode train(const RunConfig& config, dist::Session& session, const TrainOptions& options) {
  return TrainingRun(config, session, options).run();
}

}  // namespace garonne::train
