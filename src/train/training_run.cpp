#include "train/training_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/median.hpp"
#include "base/seconds.hpp"
#include "optim/schedule.hpp"
#include "train/evaluation/evaluation.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/plans/grid_table.hpp"
#include "train/plans/saved_programs.hpp"
#include "train/setup/rank_start.hpp"
#include "train/setup/stage_passes.hpp"
#include "train/stop/stop_file.hpp"
#include "train/training_text.hpp"
#include "train/workload/program_loads.hpp"
#include "train/workload/training_order.hpp"

namespace garonne::train {
namespace {

constexpr double nanoseconds = 1e9;  // of a second: what ranks tell each other whole numbers in
// Why a run stops before its end.
constexpr std::int64_t has_come_far_enough = 1;  // train.stop_after
constexpr std::int64_t asked_to_stop = 2;

// A step that throws is never finished, for which a stop would wait.
class GiveUp {
 public:
  explicit GiveUp(StepGate& gate) : gate_(gate) {}
  ~GiveUp() {
    if (!dismissed_) gate_.give_up();
  }
  GiveUp(const GiveUp&) = delete;
  GiveUp& operator=(const GiveUp&) = delete;
  void dismiss() { dismissed_ = true; }

 private:
  StepGate& gate_;
  bool dismissed_ = false;
};

}  // namespace

void TrainingRun::say(const std::string& text) const {
  if (!first_rank_) return;
  if (bar_) bar_->clear();
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// Where data cannot be read the others wait for this rank: what it lacks is taken as NaN, so that
// the loss is none and the step ends on all ranks before anything is updated. Tokens have no NaN:
// the step is made without samples, which steps of a GPU, that may be recorded, cannot be.
exec::HostBatch TrainingRun::load(int micro_batch) {
  try {
    if (!load_failure_) return stream_->next(micro_batch);
  } catch (const IoError& failure) {
    if (workload_->item() == token_item && device_->kind() == DeviceKind::Cuda) throw;
    load_failure_ = failure;
  }
  exec::HostBatch batch = blank_batch(program_, setup_.model.graph, micro_batch);
  if (workload_->item() != token_item)
    batch.samples.assign(static_cast<std::size_t>(config_.train.micro_batch), 0);
  return batch;
}

// Once a step has ended with an error that all ranks have: where one of them could not read its
// data, that is the reason, and the state before the step is saved. Collective.
void TrainingRun::end_for_data(std::int64_t step) {
  if (session_.all_reduce_max(std::vector<std::int64_t>{load_failure_ ? 1 : 0})[0] == 0) return;
  const std::int64_t before = step - 1;
  if (before > 0 && saver_->saved_step() < before) save(before, /*last=*/true);
  session_.agree([&] {
    if (!load_failure_) return;
    std::string reason = load_failure_->what();
    if (const std::string path = load_failure_->path() + ": "; reason.starts_with(path))
      reason.erase(0, path.size());
    reason += fmt::format(
        ". Step {} was not made{}", step,
        before > 0 ? fmt::format("; the checkpoint of step {} is saved", before) : std::string());
    if (reason.find("data.missing") != std::string::npos) {
      reason +=
          fmt::format("{}. `garonne data inspect {} --full` counts what is missing in each channel",
                      before > 0 ? ", from which the run goes on with data.missing = \"mask\"" : "",
                      config_.data.path);
    }
    throw IoError(load_failure_->path(), reason);
  });
}

exec::StepOutputs TrainingRun::run_step(std::int64_t step) {
  exec::StepInputs inputs;
  inputs.seed = static_cast<std::uint64_t>(config_.train.seed);
  inputs.step = step;
  inputs.loss_scale = static_cast<double>(config_.train.micro_batch) /
                      static_cast<double>(config_.train.global_batch);
  inputs.learning_rate = optim::learning_rate_at(config_, step);
  inputs.clip_norm = config_.optimizer.clip_norm;
  inputs.load = [&](int micro_batch) { return load(micro_batch); };
  inputs.before = [&](bool updates) { stop_->gate().pass(step, updates); };
  GiveUp unless_done(stop_->gate());
  exec::StepOutputs outputs;
  try {
    outputs = executor_->run(inputs);
  } catch (const dist::AgreedError& refused) {
    if (refused.code() != ExitCode::Refused) throw;
    throw dist::AgreedError(refused.code(),
                            refused.what() + not_finite_advice(config_, saver_->saved_step()));
  }
  unless_done.dismiss();
  expect(!load_failure_, "a step without its data went on");
  return outputs;
}

// What a rotated step has left to the next one, before its state is read. Collective.
void TrainingRun::finish_updates() {
  phase_->set(fmt::format("the updates of step {}", running_step_));
  executor_->flush();
}

// Saves the step that has just been made, before an error that all ranks have ends the run; says
// what is in the way. Collective.
void TrainingRun::save_before_the_end(std::int64_t step) {
  try {
    if (saver_->under_way()) finish_saving(false);
    if (saver_->saved_step() < step) save(step, /*last=*/true);
  } catch (const dist::AgreedError& other) {
    warn(other.what());
  }
}

// To those who are waited for or wait: the instruction under way, and of steps the exchange before.
void TrainingRun::show_instructions(bool of_steps) {
  phase_->set_detail([tier = tier_.get(),
                      executor = of_steps ? &*executor_ : nullptr](const std::string& otherwise) {
    const std::string activity = tier->activity();
    const std::string& now = activity.empty() ? otherwise : activity;
    const std::string last = executor == nullptr ? std::string() : executor->last_exchange();
    return last.empty() || now.empty() ? now : now + " (after " + last + ")";
  });
}

// After a validation that could not be made: the step is recorded and saved, and the error says so.
void TrainingRun::end_for_validation(const dist::AgreedError& failure, const StepMetrics& metrics) {
  record(metrics);
  save_before_the_end(metrics.step);
  if (saver_->saved_step() < metrics.step) throw failure;
  throw dist::AgreedError(
      failure.code(),
      fmt::format("{}. The validation after step {} was not made; the checkpoint of step {} is "
                  "saved. `--evaluation.batches 0` goes on from it without validations",
                  failure.what(), metrics.step, metrics.step));
}

std::optional<double> TrainingRun::validate(bool may_give_up) {
  if (validation_micro_batches_ == 0) return std::nullopt;
  finish_updates();
  phase_->set(fmt::format("the validation after step {}", running_step_));
  show_instructions(false);  // those of another executor
  const std::optional<double> loss = validation_loss(
      setup_, choice_.evaluation, resources_, *workload_, reader_, validation_micro_batches_,
      session_, peak_bytes_,
      may_give_up ? [this] { return stop_->requested(); } : std::function<bool()>());
  show_instructions(true);
  return loss;
}

StepMetrics TrainingRun::metrics_of(const exec::StepOutputs& outputs, std::int64_t step,
                                    double seconds) const {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = outputs.loss;
  metrics.gradient_norm = outputs.gradient_norm;
  metrics.learning_rate = optim::learning_rate_at(config_, step);
  metrics.seconds = seconds;
  metrics.data_seconds = outputs.data_seconds;
  metrics.samples_per_second = static_cast<double>(config_.train.global_batch) / metrics.seconds;
  metrics.items_per_second =
      metrics.samples_per_second * static_cast<double>(workload_->items_per_sample());
  metrics.item = workload_->item();
  metrics.peak_bytes = outputs.peak_bytes;
  metrics.planned_peak_bytes = largest_planned_peak_;
  metrics.time =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  metrics.utilisation = rates_of(work_, session_.size(), metrics.seconds).utilisation;
  return metrics;
}

// As the median of the last steps went.
double TrainingRun::seconds_left(std::int64_t step) const {
  constexpr std::ptrdiff_t most = 64;
  const auto count = std::min(most, static_cast<std::ptrdiff_t>(step_seconds_.size()));
  return high_median({step_seconds_.end() - count, step_seconds_.end()}) *
         static_cast<double>(config_.train.steps - step);
}

void TrainingRun::with_space_advice(const std::function<void()>& work) const {
  try {
    work();
  } catch (const dist::AgreedError& failure) {
    const std::string advice = no_space_advice(failure.what(), config_);
    if (advice.empty()) throw;
    throw dist::AgreedError(failure.code(), failure.what() + advice);
  }
}

// The last one is waited for: nothing is left to do meanwhile.
void TrainingRun::save(std::int64_t step, bool last) {
  finish_updates();
  phase_->set(fmt::format("the checkpoint of step {}", step));
  if (saver_->can_begin() && !last) return with_space_advice([&] { saver_->begin(step); });
  SavedStep saved;
  with_space_advice([&] { saved = saver_->save(step); });
  say(fmt::format("step {:>7}  checkpoint {} ({:.1f} s)\n", step,
                  checkpoint_path(config_.run.directory, step), saved.seconds));
}

// `in_the_way`: the next one is due.
void TrainingRun::finish_saving(bool in_the_way) {
  const auto start = Clock::now();
  phase_->set("the checkpoint that is being written");
  SavedStep saved;
  with_space_advice([&] { saved = saver_->finish(); });
  const double waited = seconds_since(start);
  say(fmt::format("step {:>7}  checkpoint {} ({:.1f} s, of which training waited {:.1f} s)\n",
                  saved.step, checkpoint_path(config_.run.directory, saved.step), saved.seconds,
                  saved.waited_seconds));
  constexpr double long_wait = 1;
  if (!in_the_way || waited < long_wait || std::exchange(told_of_long_waits_, true)) return;
  say(
      fmt::format("note: the next checkpoint was due before this one was written, for which "
                  "training waited {:.1f} s; with a larger checkpoint.every than {} it need not\n",
                  waited, config_.checkpoint.every));
}

void TrainingRun::write_programs() const {
  const std::string folder = options_.program_directory.empty() ? config_.run.directory + "/program"
                                                                : options_.program_directory;
  save_program(folder, program_, {session_.rank()}, outputs_.measurements);
}

void TrainingRun::say_note() {
  if (const std::string note = executor_->take_note(); !note.empty()) say(note + "\n");
}

void TrainingRun::say_summary() {
  const std::vector<std::int64_t> device = session_.all_gather(std::vector<std::int64_t>{
      std::max(program_.peak_bytes, choice_.evaluation.peak_bytes), peak_bytes_});
  std::vector<PeakBytes> peaks;
  for (std::size_t i = 0; i < device.size(); i += 2)
    peaks.push_back({device[i], device[i + 1], {}});
  const std::vector<std::int64_t> copies = session_.all_gather(
      std::vector{saving_.asynchronous ? saving_.copy_bytes : 0, saved_copy_bytes_});
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    peaks[rank].copy_planned = copies[2 * rank];
    peaks[rank].copy_measured = copies[2 * rank + 1];
  }
  for (const Tier tier : {Tier::Host, Tier::Disk}) {
    const std::vector<std::int64_t> below = session_.all_gather(
        std::vector<std::int64_t>{choice_.prediction.of(tier).peak_bytes, peaks_below_[tier]});
    for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
      if (below[2 * rank] > 0)
        peaks[rank].below.push_back({tier, below[2 * rank], below[2 * rank + 1]});
    }
  }
  // Of two the shorter: the first step is not like others.
  const auto median =
      step_seconds_.begin() + static_cast<std::ptrdiff_t>((step_seconds_.size() - 1) / 2);
  std::nth_element(step_seconds_.begin(), median, step_seconds_.end());
  say(summary_text(peaks, budget_, program_, *median, outputs_));
}

// A step and what follows it; false where it is the last one.
bool TrainingRun::train_step(std::int64_t step) {
  const auto start = Clock::now();
  if (step > start_.step + 1) {
    const double since = std::chrono::duration<double>(start - ended_).count();
    between_seconds_ = std::max(0.0, since - checkpoint_seconds_ - validated_seconds_);
  }
  const auto traced_from = std::chrono::system_clock::now();
  running_step_ = step;
  phase_->set(fmt::format("step {}", step), "between two instructions");
  outputs_ = run_step(step);
  unwritten_ = metrics_of(outputs_, step, seconds_since(start));
  stop_->gate().finish(step);
  if (capture_ && step == start_.step + 1) {
    phase_->set(fmt::format("the gradients of step {}", step));
    capture_->finish();
    saver_->save_other(options_.gradients_directory, capture_->gradients(), step);
  }
  peak_bytes_ = std::max(peak_bytes_, outputs_.peak_bytes);
  for (const auto& [tier, live] : outputs_.live_bytes_below) {
    for (const std::int64_t bytes : live) peaks_below_[tier] = std::max(peaks_below_[tier], bytes);
  }
  const bool stop_here = config_.train.stop_after > 0 &&
                         step - start_.step >= config_.train.stop_after &&
                         step < config_.train.steps;
  phase_->set(fmt::format("step {}", step), "the meeting of all ranks at its end");
  const auto together = session_.all_reduce_max(std::vector<std::int64_t>{
      program_.peak_bytes == largest_planned_peak_ ? outputs_.peak_bytes : 0,
      stop_->requested() ? asked_to_stop : (stop_here ? has_come_far_enough : 0),
      static_cast<std::int64_t>(outputs_.data_seconds * nanoseconds), saver_->progress()});
  stopping_ = together[1] != 0;
  ended_ = Clock::now();
  step_seconds_.push_back(std::chrono::duration<double>(ended_ - start).count());

  StepMetrics metrics = metrics_of(outputs_, step, step_seconds_.back());
  metrics.peak_bytes = together[0];
  metrics.data_seconds = static_cast<double>(together[2]) / nanoseconds;
  metrics.checkpoint_seconds = std::exchange(checkpoint_seconds_, 0);
  metrics.between_seconds = between_seconds_;
  if (step == start_.step + 1 && metrics_file_) {
    metrics.start = {seconds_since(started_) - step_seconds_.back(), metrics_file_->lost_steps(),
                     metrics_file_->lost_seconds()};
  }
  for (const SlowRankWatch::Found& found : slow_ranks_->after_step(outputs_)) {
    warn(describe(found));
    metrics.slow_ranks.push_back({found.rank.rank, found.place, found.rank.times});
  }
  if (tracer_ && tracer_->take(step, traced_from, seconds_since(start), outputs_, session_))
    say(tracer_->outcome());
  say_note();
  bool last = step == config_.train.steps || stopping_;
  // The first steps tell whether a run goes as it should.
  constexpr std::int64_t always_told = 3;
  if (last || step % config_.log.every == 0 || step - start_.step <= always_told)
    say(step_text(metrics, config_.train.steps, seconds_left(step)));
  const bool due = config_.evaluation.every > 0 && step % config_.evaluation.every == 0;
  validated_seconds_ = 0;
  // Who asks may end the process soon, so that nothing goes before what would be lost.
  bool saves_first = together[1] == asked_to_stop && step < config_.train.steps;
  const bool validates = due || (last && !saves_first);
  if (!saves_first && validates && !validate_and_tell(metrics, true)) {
    saves_first = true;
    stopping_ = true;
    last = true;
  }
  record(metrics);
  save_what_is_due(step, last, together[3]);
  if (saves_first && validates) {
    validate_and_tell(metrics, false);
    if (metrics.validation_loss) record(metrics);
  }
  if (bar_) bar_->advance_to(step);
  return !last;
}

// False where it was given up for a request to stop, which only happens where it may.
bool TrainingRun::validate_and_tell(StepMetrics& metrics, bool may_give_up) {
  const auto start = Clock::now();
  try {
    metrics.validation_loss = validate(may_give_up);
  } catch (const dist::AgreedError& failure) {
    end_for_validation(failure, metrics);
  }
  if (!metrics.validation_loss) return validation_micro_batches_ == 0;
  metrics.validation_seconds = seconds_since(start);
  validated_seconds_ = metrics.validation_seconds;
  gauges_.validation_seconds += metrics.validation_seconds;
  say(fmt::format("step {:>7}  validation loss {:.4f} {}\n", metrics.step, *metrics.validation_loss,
                  workload_->loss_unit()));
  return true;
}

// `progress`: of what is being written, of all ranks.
void TrainingRun::save_what_is_due(std::int64_t step, bool last, std::int64_t progress) {
  const bool to_save =
      last || (config_.checkpoint.every > 0 && step % config_.checkpoint.every == 0);
  const bool to_finish = saver_->under_way() && (to_save || progress != Saver::Writing);
  if (!to_save && !to_finish) return;
  const auto start = Clock::now();
  if (to_finish) finish_saving(to_save && !last);
  if (to_save) save(step, last);
  checkpoint_seconds_ = seconds_since(start);
  gauges_.checkpoint_seconds += checkpoint_seconds_;
}

// The row of a step. A step whose row finds no place is saved before the run ends, as far as that
// has one; not by a run that lost its lock. Collective.
void TrainingRun::record(const StepMetrics& metrics) {
  std::int64_t unrecorded = 0;
  try {
    session_.agree([&] {
      const auto lock = stop_->gate().change_outside();
      if (metrics_file_) {
        lock_->check();
        unrecorded = 1;
        metrics_file_->append(metrics);
        unrecorded = 0;
        gauges_.step = metrics;
        if (metrics.validation_loss) gauges_.validation_loss = metrics.validation_loss;
        show_state(false);
      }
      unwritten_.reset();
    });
  } catch (const dist::AgreedError&) {
    if (session_.all_reduce_max(std::vector{unrecorded})[0] == 0) throw;
    save_before_the_end(metrics.step);
    throw;
  }
}

// Collective.
bool TrainingRun::has_lost_lock() {
  return session_.all_reduce_max(std::vector<std::int64_t>{lock_ && lock_->lost() ? 1 : 0})[0] != 0;
}

// For whoever watches from outside; once a second is often enough for them. On rank 0.
void TrainingRun::show_state(bool now) {
  if (!prometheus_ || (!now && seconds_since(shown_) < 1)) return;
  shown_ = Clock::now();
  gauges_.saved_step = saver_->saved_step();
  prometheus_->write(prometheus_text(gauges_));
}

ExitCode TrainingRun::end() {
  if (bar_) bar_->clear();
  if (tracer_ && tracer_->finish(session_)) say(tracer_->outcome());
  session_.agree([&] {
    write_programs();
    if (first_rank_) show_state(true);
  });
  say_summary();
  say(end_text(config_, running_step_, seconds_since(started_), *workload_));
  const bool done = running_step_ == config_.train.steps;
  session_.agree([&] {
    if (first_rank_ && stopping_ && !done) note_stopped(config_.run.directory, running_step_);
  });
  stop_->end_training();
  if (first_rank_) forget_stop_request(config_.run.directory);
  if (!stopping_ || done) return ExitCode::Done;
  say(fmt::format("stopped on request; run the same command again to continue (exit code 75)\n"));
  return ExitCode::Requeue;
}

ExitCode TrainingRun::run() {
  if (first_rank_)
    lock_.emplace(config_.run.directory, [&](const std::string& text) { warn(text); });
  stop_ = std::make_unique<StopWatch>(session_, config_.run.directory, [this] {
    if (lock_) lock_->let_go();
  });
  say(first_text(config_, session_.size()));
  say(stop_->how_to_stop());
  watch_waits();
  prepare();
  if (first_rank_ && !not_locked_) {
    remove_lost_parting(config_.run.directory, lost_parting_,
                        [&](const std::string& text) { warn(text); });
    remove_left_over(config_.run.directory);
  }
  if (start_.step >= config_.train.steps) {
    // It may have been ended between its last checkpoint and the removal of older ones.
    if (first_rank_ && !not_locked_) keep_checkpoints();
    say(fmt::format("step {} of {} is done already; set train.steps higher to go on\n", start_.step,
                    config_.train.steps));
    return ExitCode::Done;
  }
  if (first_rank_) forget_stopped(config_.run.directory);
  if (first_rank_) say(model_text(config_, whole_, *workload_, threads_));
  plan();
  axes_ = open_training_axes(setup_, program_, *device_, session_);
  make_state();
  if (first_rank_) {
    say(plan_text({config_, whole_, choice_, program_, products_, session_.ranks_on_node()}));
  }
  say(passes_note(whole_, setup_, program_, !options_.given_programs.empty(), session_));
  say(describe_memory(setup_, choice_, budget_, saving_, session_));
  say(describe_saving(saving_));
  say(describe_lower_tiers(whole_));
  if (const std::string sums = axes_->data_sums(); !sums.empty())
    say(fmt::format("sums      {}\n", sums));
  begin();
  std::int64_t step = start_.step + 1;
  try {
    while (train_step(step)) ++step;
  } catch (const dist::AgreedError&) {
    // All ranks are here. Another run may hold the directory, where nothing is this one's to write.
    if (has_lost_lock()) {
      saver_->abandon();
      throw;
    }
    // What is being written is of a step before.
    try {
      if (saver_->under_way()) finish_saving(false);
    } catch (const dist::AgreedError& other) {
      warn(other.what());
    }
    end_for_data(step);
    throw;
  }
  return end();
}

}  // namespace garonne::train
