// A run from its start to its end. Its start is in training_start.cpp, its steps and what follows
// them in training_run.cpp.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/progress.hpp"
#include "optim/optimizer.hpp"
#include "train/checkpoint/checkpoint_keeper.hpp"
#include "train/checkpoint/manifest.hpp"
#include "train/plans/saving_plan.hpp"
#include "train/plans/step_rates.hpp"
#include "train/run/gradient_capture.hpp"
#include "train/run/metrics_file.hpp"
#include "train/run/phase.hpp"
#include "train/run/prometheus_file.hpp"
#include "train/run/run_directory.hpp"
#include "train/run/run_lock.hpp"
#include "train/run/slow_ranks.hpp"
#include "train/saver.hpp"
#include "train/setup/cluster.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/run_device.hpp"
#include "train/stop/stop_watch.hpp"
#include "train/trainer.hpp"
#include "train/workload/workload.hpp"

namespace garonne::train {

class TrainingRun {
 public:
  TrainingRun(const RunConfig& config, dist::Session& session, const TrainOptions& options)
      : config_(config), session_(session), options_(options), first_rank_(session.rank() == 0) {}
  // The session knows the phase, and its threads ask for it, to their end.
  ~TrainingRun() { phase_->set_detail({}); }
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  ExitCode run();

 private:
  using Clock = std::chrono::steady_clock;

  void say(const std::string& text) const;
  void warn(const std::string& text) const { say("warning: " + text + "\n"); }
  void prepare();
  void find_beginning();
  void take_lock();
  void find_changed_contents(const RunConfig& as_saved, const AllowedChanges& allowed);
  void expect_allowed_difference(const RunConfig& as_saved, AllowedChanges changes);
  void expect_traced_step() const;
  std::int64_t last_step_here() const;
  void say_states_of_another_optimizer();
  void plan();
  void load_initial();
  void say_difference(const TensorDifference& difference);
  void make_state();
  void load_state();
  void say_where_it_begins();
  void keep_checkpoints();
  void begin_run_directory();
  void watch_waits();
  void show_instructions(bool of_steps);
  void begin();
  exec::HostBatch load(int micro_batch);
  exec::StepOutputs run_step(std::int64_t step);
  void end_for_data(std::int64_t step);
  void save_before_the_end(std::int64_t step);
  [[noreturn]] void end_for_validation(const dist::AgreedError& failure,
                                       const StepMetrics& metrics);
  void finish_updates();
  std::optional<double> validate(bool may_give_up);
  StepMetrics metrics_of(const exec::StepOutputs& outputs, std::int64_t step, double seconds) const;
  double seconds_left(std::int64_t step) const;
  bool train_step(std::int64_t step);
  bool validate_and_tell(StepMetrics& metrics, bool may_give_up);
  void save_what_is_due(std::int64_t step, bool last, std::int64_t progress);
  void record(const StepMetrics& metrics);
  bool has_lost_lock();
  void show_state(bool now);
  void with_space_advice(const std::function<void()>& work) const;
  void save(std::int64_t step, bool last);
  void finish_saving(bool in_the_way);
  void make_tier();
  void write_programs() const;
  std::optional<std::span<std::byte>> room_for_copy();
  void say_note();
  void say_summary();
  ExitCode end();

  RunConfig config_;
  dist::Session& session_;
  TrainOptions options_;
  bool first_rank_;
  std::shared_ptr<Phase> phase_ = std::make_shared<Phase>();
  Clock::time_point started_ = Clock::now();
  // On rank 0; released when everything else is done.
  std::optional<RunLock> lock_;
  std::optional<IoError> not_locked_;      // why, where the folder takes no files
  std::vector<std::string> lost_parting_;  // left by an earlier start, of which nothing is to come
  std::optional<CheckpointKeeper> keeper_;
  int threads_ = 1;
  std::int64_t budget_ = 0;
  std::unique_ptr<Workload> workload_;
  nlohmann::json contents_;  // of the data, as checkpoints say
  StartingPoint start_;
  StartingPoint initial_;               // where the parameters of a new run come from; else empty
  std::optional<Beginning> beginning_;  // what is remembered of that
  Setup whole_;                         // of all stages
  Setup setup_;                         // of this rank's stage
  Choice choice_;
  Saving saving_;
  plan::Program program_;
  plan::CostTable costs_;  // of this model's nodes
  ModelWork work_;         // of a step of all ranks
  nn::Products products_;
  std::unique_ptr<ComputeSession> compute_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<exec::DeviceTier> tier_;
  at::Tensor saved_copy_;              // what checkpoints are written from beside training
  std::int64_t saved_copy_bytes_ = 0;  // as its memory was counted
  exec::ModelState state_;
  LowerMemory below_;  // where the Program has buffers there
  exec::RankResources resources_;
  std::shared_ptr<data::Reader> reader_;
  std::int64_t validation_micro_batches_ = 0;
  std::int64_t peak_bytes_ = 0;
  std::map<Tier, std::int64_t> peaks_below_;
  std::int64_t largest_planned_peak_ = 0;  // of all ranks
  std::optional<StepMetrics> unwritten_;   // of a step that is finished
  std::int64_t running_step_ = 0;
  std::unique_ptr<BatchStream> stream_;
  std::optional<IoError> load_failure_;  // of a batch of this step
  std::optional<GradientCapture> capture_;
  std::optional<MetricsFile> metrics_file_;
  std::optional<StepTracer> tracer_;
  std::optional<SlowRankWatch> slow_ranks_;
  RunGauges gauges_;
  Clock::time_point ended_;                   // the seconds of the step before did
  double checkpoint_seconds_ = 0;             // since then
  double validated_seconds_ = 0;              // likewise
  double between_seconds_ = 0;                // what else there was
  std::optional<PrometheusFile> prometheus_;  // on rank 0
  Clock::time_point shown_;                   // when it was written
  std::optional<Saver> saver_;
  bool told_of_long_waits_ = false;
  exec::StepOutputs outputs_;  // of the last step
  std::vector<double> step_seconds_;
  bool stopping_ = false;
  std::unique_ptr<Progress> bar_;
  std::unique_ptr<StopWatch> stop_;         // its thread uses the others
  std::unique_ptr<RunDevice> device_;       // its lanes use all of them
  std::unique_ptr<Axes> axes_;              // transports of a GPU's buffers use the device
  std::optional<exec::Executor> executor_;  // last: a recorded step is the device's
};

}  // namespace garonne::train
