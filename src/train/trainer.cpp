#include "train/trainer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/progress.hpp"
#include "base/version.hpp"
#include "data/sample_order.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedule.hpp"
#include "plan/model/step_costs.hpp"
#include "train/checkpoint/checkpoint_keeper.hpp"
#include "train/evaluation/evaluation.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/plans/grid_table.hpp"
#include "train/run/gradient_capture.hpp"
#include "train/run/metrics_file.hpp"
#include "train/run/run_directory.hpp"
#include "train/run/run_lock.hpp"
#include "train/setup/available_memory.hpp"
#include "train/setup/cluster.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/rank_agreement.hpp"
#include "train/stop/stop_file.hpp"
#include "train/stop/stop_watch.hpp"
#include "train/workload/workload.hpp"

namespace garonne::train {
namespace {

using Clock = std::chrono::steady_clock;

// Between planned and measured seconds, beyond which the profile is doubted.
constexpr double disagreement = 0.25;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Trainer {
 public:
  Trainer(const RunConfig& config, dist::Session& session, const TrainOptions& options)
      : config_(config), session_(session), options_(options), first_rank_(session.rank() == 0) {}

  ExitCode run();

 private:
  void say(const std::string& text) const;
  void warn(const std::string& text) const { say("warning: " + text + "\n"); }
  void prepare();
  void plan();
  void print_start() const;
  void make_state();
  void watch_waits();
  exec::StepOutputs run_step(exec::Executor& executor, BatchStream& stream, std::int64_t step);
  std::optional<double> validate();
  void save(std::int64_t step);
  void save(const std::string& folder, const exec::ModelState& state,
            const std::vector<std::string>& state_names, std::int64_t step,
            const Together& together);
  void save_apart(std::int64_t step, FileMeeting& meeting) const;
  Together together();
  Together members() const;
  Manifest manifest_of(std::int64_t step) const;
  StepMetrics metrics_of(const exec::StepOutputs& outputs, std::int64_t step, double seconds) const;
  void print_step(const StepMetrics& metrics) const;
  void write_programs(const exec::StepOutputs& last) const;
  void print_summary(const exec::StepOutputs& last, double median_seconds);
  std::unique_ptr<BatchStream> open_stream(std::int64_t first_step) const;

  RunConfig config_;
  dist::Session& session_;
  TrainOptions options_;
  bool first_rank_;
  Clock::time_point started_ = Clock::now();
  // On rank 0; released when everything else is done.
  std::optional<RunLock> lock_;
  std::optional<CheckpointKeeper> keeper_;
  int threads_ = 1;
  std::int64_t budget_ = 0;
  std::unique_ptr<Workload> workload_;
  StartingPoint start_;
  Setup whole_;  // of all stages
  Setup setup_;  // of this rank's stage
  Choice choice_;
  plan::Program program_;
  plan::CostTable costs_;  // of this model's nodes
  nn::Products products_;
  std::unique_ptr<ComputeSession> compute_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<Axes> axes_;
  std::unique_ptr<exec::DeviceTier> tier_;
  exec::ModelState state_;
  exec::Machine machine_;
  std::shared_ptr<data::Reader> reader_;
  std::int64_t validation_micro_batches_ = 0;
  std::int64_t peak_bytes_ = 0;
  std::int64_t largest_planned_peak_ = 0;  // of all ranks
  std::int64_t metrics_step_ = 0;          // the last step that is in metrics.jsonl
  std::optional<StepMetrics> unwritten_;   // of a step that is finished
  std::atomic<std::int64_t> saved_step_{0};
  nlohmann::json data_manifest_;
  std::int64_t running_step_ = 0;
  std::unique_ptr<Progress> bar_;
  std::unique_ptr<StopWatch> stop_;  // last: its thread uses the others
};

void Trainer::say(const std::string& text) const {
  if (!first_rank_) return;
  if (bar_) bar_->clear();
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// Everything that can be wrong with what the user gave, agreed by all ranks before anything is
// written.
void Trainer::prepare() {
  threads_ = agree_on_run(config_, session_);
  budget_ = budget_of_ranks(config_, session_);
  session_.agree([&] {
    expect_storable(config_);
    check_grid(config_, session_.size());
    await_parting(config_.run.directory, [&](const std::string& text) { say(text + "\n"); });
    workload_ = open_workload(config_);
    whole_ = make_setup(config_, workload_->facts(), threads_, session_.rank());
    setup_ = setup_of_stage(whole_, whole_.grid.coordinates_of(session_.rank()).pipeline);
  });
  const RunConfig as_saved = with_paths_of_first_rank(config_, session_);
  dist::agree_on(session_, [&] { return workload_->contents(); });
  // Before anybody looks at what is in the directory.
  session_.agree([&] {
    if (first_rank_)
      lock_.emplace(config_.run.directory, [&](const std::string& text) { warn(text); });
  });
  session_.agree([&] {
    start_ = find_starting_point(as_saved, [&](const std::string& text) { warn(text); });
  });
  dist::agree_on(session_, [&] { return checkpoint_facts(start_); });
  session_.set_coordinates(to_string(setup_.grid.coordinates_of(session_.rank())));
  validation_micro_batches_ =
      validation_micro_batches(config_, workload_->samples(Part::Validation));
}

void Trainer::plan() {
  // A budget that is too small is said before anything is measured.
  const int own_stage = setup_.grid.coordinates_of(session_.rank()).pipeline;
  StageFloor floor;
  session_.agree([&] {
    floor = floor_of_stage(whole_, own_stage, budget_, config_.memory.plan, Effort::FirstThatFits);
  });
  compute_ = std::make_unique<ComputeSession>(threads_);
  plan::CostTable costs = obtain_costs(whole_, threads_, start_.manifest.products, session_);
  try {
    products_ = nn::Products::from_json(costs.products);
  } catch (const ConfigError& unavailable) {
    say(fmt::format("warning: {}; this machine's own choice is used and bits will differ\n",
                    unavailable.what()));
    costs = obtain_costs(whole_, threads_, nlohmann::json::object(), session_);
    products_ = nn::Products::from_json(costs.products);
  }
  apply_costs(costs, whole_);
  // What this run was planned with; the cache may hold other models as well.
  costs_ = costs;
  std::erase_if(costs_.rows, [&](const auto& row) {
    const auto& nodes = whole_.model.graph.nodes;
    const std::string& precision = config_.train.precision;
    return row.first != plan::step_cost_key("norm", precision) &&
           row.first != plan::step_cost_key(config_.optimizer.name, precision) &&
           std::none_of(nodes.begin(), nodes.end(),
                        [&](const auto& node) { return node.cost_key == row.first; });
  });
  choice_ = choose_together(whole_, own_stage, floor, budget_, setup_, session_);
  program_ = program_of_rank(setup_, choice_, session_.rank());
  program_.seconds = seconds_of_step(setup_, program_, session_);
  largest_planned_peak_ = session_.all_reduce_max(std::vector{program_.peak_bytes})[0];
}

void Trainer::print_start() const {
  if (!first_rank_) return;
  std::string text = version_text();
  if (!text.empty() && text.back() != '\n') text += '\n';
  text += fmt::format(
      "model     {} · {} · {:.2f} M parameters, {}\n", config_.model.kind, describe_sizes(whole_),
      static_cast<double>(whole_parameter_elements(whole_.model)) / 1e6, config_.train.precision);
  text += fmt::format("data      {}\n", workload_->summary());
  text += fmt::format(
      "grid      {} · {} thread{} a rank · {} micro-batch{} of {} samples a rank and step\n",
      to_string(setup_.grid.shape()), threads_, threads_ == 1 ? "" : "s", program_.micro_batches,
      program_.micro_batches == 1 ? "" : "es", config_.train.micro_batch);
  text += fmt::format("products  {}\n", [&] {
    std::map<std::string, int> counts;
    const nlohmann::json chosen = products_.to_json();
    for (const auto& [key, library] : chosen.items()) ++counts[library.get<std::string>()];
    std::string line;
    for (const auto& [name, count] : counts)
      line += fmt::format("{}{} {}", line.empty() ? "" : ", ", name, count);
    return line + " (chosen by measurement, choices.json)";
  }());
  text +=
      fmt::format("plan      {} · predicted peak {} · {:.1f} ms a step{}\n", program_.name,
                  format_bytes(program_.peak_bytes), 1e3 * program_.seconds,
                  choice_.minimum_budget_bytes == 0
                      ? ""
                      : fmt::format(" · smallest budget {} B ({})", choice_.minimum_budget_bytes,
                                    format_bytes(choice_.minimum_budget_bytes)));
  if (choice_.cut_as_declared) text += cut_as_declared_note;
  if (config_.memory.budget == RunConfig::automatic_budget)
    text += describe_automatic_budget(session_.ranks_on_node());
  say(text);
}

// Who keeps the others waiting is said after a minute, or sooner where waits end sooner.
void Trainer::watch_waits() {
  constexpr double first_line = 60;
  const auto limit = static_cast<double>(config_.run.timeout);
  session_.watch_waits(limit > 0 ? std::min(first_line, limit / 2) : first_line, limit, [this] {
    if (running_step_ == 0) return std::string("the start of the run");
    const std::string activity = tier_ ? tier_->activity() : std::string();
    return fmt::format("step {}, {}", running_step_,
                       activity.empty() ? "between two instructions" : activity);
  });
}

void Trainer::make_state() {
  optimizer_ = optim::make_optimizer(config_);
  tier_ = std::make_unique<exec::DeviceTier>(budget_);
  {
    const exec::DeviceScope scope(*tier_);
    state_ = exec::initial_state(setup_.model, setup_.declaration.precision,
                                 static_cast<std::uint64_t>(config_.train.seed), program_,
                                 program_.coordinates.data);
  }
  session_.agree([&] {
    if (start_.checkpoint.empty()) return;
    load_checkpoint(start_.checkpoint, start_.manifest, setup_.model, optimizer_->state_names(),
                    state_,
                    whole_.model.graph.parameters.size() * (1 + optimizer_->state_names().size()));
  });
  exec::gather_parameters(state_, axes_->data());
  if (!start_.checkpoint.empty()) {
    say(fmt::format("continuing from {} (step {} of {})\n", start_.checkpoint, start_.step,
                    config_.train.steps));
    if (start_.manifest.threads != threads_) {
      say(
          fmt::format("note: the checkpoint was made with {} threads a rank, this run has {}: last "
                      "bits may differ\n",
                      start_.manifest.threads, threads_));
    }
  }
  session_.agree([&] {
    if (!first_rank_) return;
    lock_->check();
    prepare_run_directory(config_);
    keeper_.emplace(config_.run.directory, [&](const std::string& text) { warn(text); });
    if (!start_.checkpoint.empty()) keeper_->started_from(start_.step);
    const nlohmann::ordered_json choices = {{"format", "garonne.choices"},
                                            {"version", 1},
                                            {"threads", threads_},
                                            {"products", products_.to_json()}};
    write_file_durably(config_.run.directory + "/choices.json", choices.dump(1) + "\n");
    write_file_durably(config_.run.directory + "/costs.json", plan::to_json(costs_).dump(1) + "\n");
  });
  machine_ = {.tier = tier_.get(),
              .state = &state_,
              .products = &products_,
              .optimizer = optimizer_.get(),
              .data = axes_->data(),
              .tensor = axes_->tensor(),
              .pipeline = axes_->pipeline(),
              .tied = axes_->tied(),
              .world = axes_->world(),
              .watch_gradient = {}};
}

std::unique_ptr<BatchStream> Trainer::open_stream(std::int64_t first_step) const {
  const data::SampleOrder order(workload_->samples(Part::Training),
                                static_cast<std::uint64_t>(config_.train.seed),
                                workload_->shuffle_block());
  const std::int64_t batch = config_.train.global_batch;
  const std::int64_t micro = config_.train.micro_batch;
  const std::int64_t per_rank = program_.micro_batches;
  const std::int64_t mine = program_.coordinates.data;
  // A stage begins its micro-batches in the order of its schedule.
  std::vector<std::int64_t> loads;
  for (const auto& instruction : program_.instructions) {
    if (instruction.operation == plan::Operation::Load) loads.push_back(instruction.micro_batch);
  }
  const auto samples_of = [=](std::int64_t ordinal) {
    const std::int64_t step = ordinal / per_rank;
    const std::int64_t number = loads[static_cast<std::size_t>(ordinal % per_rank)];
    const std::int64_t first = step * batch + (mine * per_rank + number) * micro;
    std::vector<std::int64_t> samples;
    for (std::int64_t i = 0; i < micro; ++i) samples.push_back(order.sample(first + i));
    return samples;
  };
  return workload_->open(
      reader_, Part::Training,
      {samples_of, (first_step - 1) * per_rank, config_.train.steps * per_rank, setup_.model.rows});
}

exec::StepOutputs Trainer::run_step(exec::Executor& executor, BatchStream& stream,
                                    std::int64_t step) {
  exec::StepInputs inputs;
  inputs.seed = static_cast<std::uint64_t>(config_.train.seed);
  inputs.step = step;
  inputs.loss_scale = static_cast<double>(config_.train.micro_batch) /
                      static_cast<double>(config_.train.global_batch);
  inputs.learning_rate = optim::learning_rate_at(config_, step);
  inputs.clip_norm = config_.optimizer.clip_norm;
  inputs.load = [&](int) { return stream.next(); };
  inputs.before = [&](bool updates) { stop_->gate().pass(step, updates); };
  return executor.run(inputs);
}

std::optional<double> Trainer::validate() {
  if (validation_micro_batches_ == 0) return std::nullopt;
  return validation_loss(setup_, choice_.evaluation, machine_, *workload_, reader_,
                         validation_micro_batches_, session_, peak_bytes_);
}

void Trainer::save(std::int64_t step) {
  // Nothing is begun that the end of this process would leave half-written.
  stop_->gate().change_outside().unlock();
  save(config_.run.directory, state_, optimizer_->state_names(), step, together());
  saved_step_ = step;
  session_.agree([&] {
    if (keeper_) keeper_->saved(step, config_.checkpoint.keep);
  });
}

void Trainer::save(const std::string& folder, const exec::ModelState& state,
                   const std::vector<std::string>& state_names, std::int64_t step,
                   const Together& together) {
  save_checkpoint(folder, setup_.model, state_names, state, manifest_of(step), together);
}

// In a process that has only a copy of this one's memory.
void Trainer::save_apart(std::int64_t step, FileMeeting& meeting) const {
  if (first_rank_ && unwritten_ && unwritten_->step == step)
    MetricsFile(config_.run.directory, step, [](const std::string&) {}).append(*unwritten_);
  Together apart = members();
  apart.suffix = parting_suffix;
  apart.phase = [&](const std::function<void()>& work) { meeting.phase(work); };
  apart.gather = [&](const std::string& text) { return meeting.gather(text); };
  apart.first_text = [&](const std::string& text) { return meeting.first_text(text); };
  save_checkpoint(config_.run.directory, setup_.model, optimizer_->state_names(), state_,
                  manifest_of(step), apart);
}

Manifest Trainer::manifest_of(std::int64_t step) const {
  Manifest manifest;
  manifest.step = step;
  manifest.config = config_to_toml(config_);
  manifest.threads = threads_;
  manifest.products = products_.to_json();
  manifest.data = data_manifest_;
  return manifest;
}

Together Trainer::members() const {
  Together together;
  together.rank = session_.rank();
  together.ranks = session_.size();
  const Coordinates here = setup_.grid.coordinates_of(session_.rank());
  together.replica = here.data;
  together.replicas = setup_.grid.shape().data;
  together.writes_replicated = here.tensor == 0;
  return together;
}

Together Trainer::together() {
  Together together = members();
  together.phase = [&](const std::function<void()>& work) { session_.agree(work); };
  together.gather = [&](const std::string& text) { return session_.gather(text); };
  together.first_text = [&](const std::string& text) {
    const std::vector<std::string> texts = session_.gather(text);
    const auto found =
        std::find_if(texts.begin(), texts.end(), [](const auto& one) { return !one.empty(); });
    return session_.broadcast(found == texts.end() ? "" : *found);
  };
  together.commit = [&](const std::function<void()>& work) {
    const auto lock = stop_->gate().change_outside();
    work();
  };
  return together;
}

StepMetrics Trainer::metrics_of(const exec::StepOutputs& outputs, std::int64_t step,
                                double seconds) const {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = outputs.loss;
  metrics.gradient_norm = outputs.gradient_norm;
  metrics.learning_rate = optim::learning_rate_at(config_, step);
  metrics.seconds = seconds;
  metrics.samples_per_second = static_cast<double>(config_.train.global_batch) / metrics.seconds;
  metrics.items_per_second =
      metrics.samples_per_second * static_cast<double>(workload_->items_per_sample());
  metrics.item = workload_->item();
  metrics.peak_bytes = outputs.peak_bytes;
  metrics.planned_peak_bytes = largest_planned_peak_;
  return metrics;
}

void Trainer::print_step(const StepMetrics& metrics) const {
  constexpr double mebibyte = 1048576.0;
  say(
      fmt::format("step {:>7}  loss {:>8.4f}  norm {:>8.3f}  lr {:.2e}  {:>8.1f} ms  {:>9.0f} "
                  "{}/s  peak {:.2f}/{:.2f} MiB\n",
                  metrics.step, metrics.loss, metrics.gradient_norm, metrics.learning_rate,
                  1e3 * metrics.seconds, metrics.items_per_second, metrics.item,
                  static_cast<double>(metrics.peak_bytes) / mebibyte,
                  static_cast<double>(metrics.planned_peak_bytes) / mebibyte));
}

void Trainer::write_programs(const exec::StepOutputs& last) const {
  const std::string folder = options_.program_directory.empty() ? config_.run.directory + "/program"
                                                                : options_.program_directory;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  write_file_durably(fmt::format("{}/rank_{}.json", folder, session_.rank()),
                     plan::to_json(program_, {session_.rank()}, last.measurements).dump(1) + "\n");
}

void Trainer::print_summary(const exec::StepOutputs& last, double median_seconds) {
  const std::vector<std::int64_t> peaks = session_.all_gather(std::vector<std::int64_t>{
      std::max(program_.peak_bytes, choice_.evaluation.peak_bytes), peak_bytes_});
  if (!first_rank_) return;
  std::string text = "plan beside measurement\n";
  for (std::size_t rank = 0; 2 * rank < peaks.size(); ++rank) {
    const std::int64_t planned = peaks[2 * rank];
    const std::int64_t measured = peaks[2 * rank + 1];
    text += fmt::format(
        "  rank {:<4} peak planned {:>14} B  measured {:>14} B  ({:6.2f} %)  budget {} B\n", rank,
        planned, measured, 100.0 * static_cast<double>(measured) / static_cast<double>(planned),
        budget_);
  }
  double computed = 0;
  for (const auto& measurement : last.measurements) computed += measurement.seconds;
  text += fmt::format(
      "  a step    planned {:.1f} ms  measured {:.1f} ms (median), {:.1f} ms in instructions of "
      "the last\n",
      1e3 * program_.seconds, 1e3 * median_seconds, 1e3 * computed);
  if (std::abs(program_.seconds - median_seconds) > disagreement * median_seconds) {
    text +=
        "  planned and measured seconds disagree: one of them was measured while the machine "
        "did other things;\n  `garonne profile CONFIG --again` measures the nodes once more\n";
  }
  say(text);
}

ExitCode Trainer::run() {
  stop_ = std::make_unique<StopWatch>(session_, config_.run.directory);
  say(stop_->how_to_stop());
  prepare();
  if (start_.step >= config_.train.steps) {
    say(fmt::format("step {} of {} is done already; set train.steps higher to go on\n", start_.step,
                    config_.train.steps));
    return ExitCode::Done;
  }
  stop_->watch_directory();
  watch_waits();
  plan();
  axes_ = std::make_unique<Axes>(setup_, session_);
  make_state();
  print_start();
  say(describe_memory(setup_, choice_, budget_, session_));
  reader_ = std::make_shared<data::Reader>();
  const std::unique_ptr<BatchStream> stream = open_stream(start_.step + 1);
  std::optional<GradientCapture> capture;
  if (!options_.gradients_directory.empty()) {
    capture.emplace(setup_.model, setup_.declaration.precision, program_,
                    program_.coordinates.data);
    machine_.watch_gradient = [&](int parameter, const at::Tensor& gradient) {
      capture->take(parameter, gradient);
    };
  }
  exec::Executor executor(setup_.model, program_, machine_);
  std::unique_ptr<MetricsFile> metrics_file;
  session_.agree([&] {
    if (first_rank_)
      metrics_file = std::make_unique<MetricsFile>(config_.run.directory, start_.step,
                                                   [&](const std::string& text) { warn(text); });
  });
  data_manifest_ = workload_->manifest();
  saved_step_ = start_.step;
  stop_->begin_training(
      {.first_step = start_.step,
       .last_step = config_.train.steps,
       .saved_step = [this] { return saved_step_.load(); },
       .save = [this](std::int64_t step, FileMeeting& meeting) { save_apart(step, meeting); },
       .leave =
           [this] {
             if (lock_) lock_->let_go();
           }});
  if (first_rank_) bar_ = std::make_unique<Progress>("train", config_.train.steps);
  say(fmt::format("ready after {:.2f} s\n", seconds_since(started_)));

  exec::StepOutputs outputs;
  std::vector<double> step_seconds;
  bool stopping = false;
  for (std::int64_t step = start_.step + 1; step <= config_.train.steps && !stopping; ++step) {
    const auto start = Clock::now();
    running_step_ = step;
    outputs = run_step(executor, *stream, step);
    unwritten_ = metrics_of(outputs, step, seconds_since(start));
    stop_->gate().finish(step);
    if (capture && step == start_.step + 1) {
      capture->finish();
      save(options_.gradients_directory, capture->gradients(), {}, step, together());
    }
    peak_bytes_ = std::max(peak_bytes_, outputs.peak_bytes);
    const bool stop_here = config_.train.stop_after > 0 &&
                           step - start_.step >= config_.train.stop_after &&
                           step < config_.train.steps;
    const auto together = session_.all_reduce_max(std::vector<std::int64_t>{
        program_.peak_bytes == largest_planned_peak_ ? outputs.peak_bytes : 0,
        (stop_here || stop_->requested()) ? 1 : 0});
    stopping = together[1] != 0;
    step_seconds.push_back(seconds_since(start));

    StepMetrics metrics = metrics_of(outputs, step, step_seconds.back());
    metrics.peak_bytes = together[0];
    print_step(metrics);
    const bool last = step == config_.train.steps || stopping;
    const bool due = config_.evaluation.every > 0 && step % config_.evaluation.every == 0;
    if (due || last) metrics.validation_loss = validate();
    if (metrics.validation_loss)
      say(fmt::format("step {:>7}  validation loss {:.4f} {}\n", step, *metrics.validation_loss,
                      workload_->loss_unit()));
    session_.agree([&] {
      const auto lock = stop_->gate().change_outside();
      if (metrics_file) {
        lock_->check();
        metrics_file->append(metrics);
      }
      unwritten_.reset();
    });
    if (last || (config_.checkpoint.every > 0 && step % config_.checkpoint.every == 0)) save(step);
    if (bar_) bar_->advance_to(step);
    metrics_step_ = step;
  }
  if (bar_) bar_->clear();
  std::nth_element(step_seconds.begin(),
                   step_seconds.begin() + static_cast<std::ptrdiff_t>(step_seconds.size() / 2),
                   step_seconds.end());
  session_.agree([&] { write_programs(outputs); });
  print_summary(outputs, step_seconds[step_seconds.size() / 2]);
  session_.agree([&] {
    if (first_rank_ && stopping && metrics_step_ < config_.train.steps)
      note_stopped(config_.run.directory, metrics_step_);
  });
  stop_->end_training();
  if (first_rank_) forget_stop_request(config_.run.directory);
  if (!stopping || metrics_step_ == config_.train.steps) return ExitCode::Done;
  say(fmt::format("stopped on request; run the same command again to continue (exit code 75)\n"));
  return ExitCode::Requeue;
}

}  // namespace

ExitCode train(const RunConfig& config, dist::Session& session, const TrainOptions& options) {
  return Trainer(config, session, options).run();
}

}  // namespace garonne::train
