#include "train/trainer.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/file.hpp"
#include "base/progress.hpp"
#include "base/version.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedule.hpp"
#include "plan/model/step_costs.hpp"
#include "train/checkpoint/checkpoint_keeper.hpp"
#include "train/evaluation/evaluation.hpp"
#include "train/plans/given_programs.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/plans/grid_table.hpp"
#include "train/plans/saving_plan.hpp"
#include "train/run/gradient_capture.hpp"
#include "train/run/metrics_file.hpp"
#include "train/run/phase.hpp"
#include "train/run/prometheus_file.hpp"
#include "train/run/run_directory.hpp"
#include "train/run/run_lock.hpp"
#include "train/run/run_tokenizer.hpp"
#include "train/run/slow_ranks.hpp"
#include "train/saver.hpp"
#include "train/setup/cluster.hpp"
#include "train/setup/lower_tiers.hpp"
#include "train/setup/model_operations.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/rank_agreement.hpp"
#include "train/setup/run_device.hpp"
#include "train/setup/start_check.hpp"
#include "train/stop/stop_file.hpp"
#include "train/stop/stop_watch.hpp"
#include "train/training_text.hpp"
#include "train/workload/training_order.hpp"
#include "train/workload/workload.hpp"

namespace garonne::train {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double nanoseconds = 1e9;  // of a second: what ranks tell each other whole numbers in

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

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

// A model knows the tokens that it was trained on.
void expect_same_tokenizer(const Manifest& manifest, const Workload& workload,
                           const std::string& path) {
  if (!manifest.data.is_object()) return;
  const std::string saved = manifest.data.value("tokenizer", std::string());
  const std::string& given = workload.facts().tokenizer;
  if (saved.empty() || saved == given) return;
  throw ConfigError("data.path", path,
                    fmt::format("has tokens of the tokenizer {}, and the checkpoint was trained on "
                                "those of {}; make the data with the run's tokenizer",
                                given, saved));
}

// A verified checkpoint: `path` itself, or the newest of a run directory.
StartingPoint initial_point(const std::string& path) {
  StartingPoint point;
  std::error_code error;
  point.checkpoint = path;
  if (!std::filesystem::exists(path + "/manifest.json", error)) {
    const auto steps = list_checkpoints(path);
    if (steps.empty()) {
      throw ConfigError("--init-from", path,
                        "is neither a checkpoint nor a run directory that has one; `garonne "
                        "checkpoint import` makes one of a model of Hugging Face");
    }
    point.checkpoint = checkpoint_path(path, steps.back());
  }
  point.manifest = verify_checkpoint(point.checkpoint);
  point.step = point.manifest.step;
  return point;
}

class Trainer {
 public:
  Trainer(const RunConfig& config, dist::Session& session, const TrainOptions& options)
      : config_(config), session_(session), options_(options), first_rank_(session.rank() == 0) {}
  // The session knows the phase, and its threads ask for it, to their end.
  ~Trainer() { phase_->set_detail({}); }
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  ExitCode run();

 private:
  void say(const std::string& text) const;
  void warn(const std::string& text) const { say("warning: " + text + "\n"); }
  void prepare();
  void plan();
  void load_initial();
  void say_difference(const TensorDifference& difference);
  void make_state();
  void watch_waits();
  void begin();
  exec::StepOutputs run_step(std::int64_t step);
  std::optional<double> validate();
  StepMetrics metrics_of(const exec::StepOutputs& outputs, std::int64_t step, double seconds) const;
  double seconds_left(std::int64_t step) const;
  bool train_step(std::int64_t step);
  void show_state(bool now);
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
  std::optional<CheckpointKeeper> keeper_;
  int threads_ = 1;
  std::int64_t budget_ = 0;
  std::unique_ptr<Workload> workload_;
  StartingPoint start_;
  StartingPoint initial_;  // where the parameters of a new run come from; else empty
  Setup whole_;            // of all stages
  Setup setup_;            // of this rank's stage
  Choice choice_;
  Saving saving_;
  plan::Program program_;
  plan::CostTable costs_;  // of this model's nodes
  nn::Products products_;
  std::unique_ptr<ComputeSession> compute_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<exec::DeviceTier> tier_;
  at::Tensor saved_copy_;              // what checkpoints are written from beside training
  std::int64_t saved_copy_bytes_ = 0;  // as its memory was counted
  exec::ModelState state_;
  LowerMemory below_;  // where the Program has buffers there
  exec::Machine machine_;
  std::shared_ptr<data::Reader> reader_;
  std::int64_t validation_micro_batches_ = 0;
  std::int64_t peak_bytes_ = 0;
  std::map<Tier, std::int64_t> peaks_below_;
  std::int64_t largest_planned_peak_ = 0;  // of all ranks
  std::optional<StepMetrics> unwritten_;   // of a step that is finished
  std::int64_t running_step_ = 0;
  std::unique_ptr<BatchStream> stream_;
  std::optional<GradientCapture> capture_;
  std::optional<MetricsFile> metrics_file_;
  std::optional<StepTracer> tracer_;
  std::optional<SlowRankWatch> slow_ranks_;
  RunGauges gauges_;
  double checkpoint_seconds_ = 0;  // since the step before
  double validation_seconds_ = 0;
  Clock::time_point shown_;  // when what Prometheus collects was written
  std::optional<Saver> saver_;
  bool told_of_long_waits_ = false;
  exec::StepOutputs outputs_;  // of the last step
  std::vector<double> step_seconds_;
  double operations_of_rank_ = 0;  // of the model in a step, the mean over ranks
  bool stopping_ = false;
  std::unique_ptr<Progress> bar_;
  std::unique_ptr<StopWatch> stop_;         // its thread uses the others
  std::unique_ptr<RunDevice> device_;       // its lanes use all of them
  std::unique_ptr<Axes> axes_;              // transports of a GPU's buffers use the device
  std::optional<exec::Executor> executor_;  // last: a recorded step is the device's
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
  device_ = std::make_unique<RunDevice>(config_, session_);
  budget_ = device_->budget_bytes(config_, session_);
  say(device_->text());
  for (const std::string& text :
       check_start(session_, device_->kind() == DeviceKind::Cuda ? 1 : threads_))
    warn(text);
  session_.agree([&] {
    expect_storable(config_);
    check_grid(config_, session_.size());
    await_parting(config_.run.directory, [&](const std::string& text) { say(text + "\n"); });
    workload_ = open_workload(config_);
    whole_ = make_setup(config_, workload_->facts(), threads_, session_.rank());
    whole_.ranks_on_node = session_.ranks_on_node();
  });
  agree_on_lower_budgets(whole_, budget_, session_);
  session_.agree([&] {
    setup_ = setup_of_stage(whole_, whole_.grid.coordinates_of(session_.rank()).pipeline);
  });
  const RunConfig as_saved = with_paths_of_first_rank(config_, session_);
  dist::agree_on(session_, [&] { return workload_->contents(); });
  // Before anybody looks at what is in the directory.
  session_.agree([&] {
    if (lock_) lock_->take();
    stop_->watch_directory();
  });
  session_.agree([&] {
    start_ = find_starting_point(
        as_saved, [&](const std::string& text) { warn(text); }, options_.allowed.any());
  });
  session_.agree([&] {
    expect_same_tokenizer(start_.manifest, *workload_, config_.data.path);
    if (options_.init_from.empty() || !start_.checkpoint.empty()) return;
    initial_ = initial_point(options_.init_from);
    expect_same_tokenizer(initial_.manifest, *workload_, config_.data.path);
  });
  dist::agree_on(session_, [&] { return checkpoint_facts(start_); });
  dist::agree_on(session_, [&] { return checkpoint_facts(initial_); });
  session_.set_coordinates(to_string(setup_.grid.coordinates_of(session_.rank())));
  validation_micro_batches_ =
      validation_micro_batches(config_, workload_->samples(Part::Validation));
}

void Trainer::plan() {
  phase_->set("measuring and planning");
  // A budget that is too small is said before anything is measured.
  const int own_stage = setup_.grid.coordinates_of(session_.rank()).pipeline;
  StageFloor floor;
  session_.agree([&] {
    if (!options_.given_programs.empty()) return;
    if (!plans_for_its_stage(whole_.grid, session_.rank())) return;
    floor = floor_of_stage(whole_, own_stage, budget_, whole_.config.memory.plan,
                           Effort::FirstThatFits);
  });
  compute_ = std::make_unique<ComputeSession>(threads_);
  device_->use_kernels(session_);
  plan::CostTable costs =
      obtain_costs(whole_, threads_, start_.manifest.products, *device_, session_);
  if (const auto refusal = nn::Products::refusal_of(costs.products)) {
    say(fmt::format("warning: {}; this machine's own choice is used and bits will differ\n",
                    refusal->what()));
    costs = obtain_costs(whole_, threads_, nlohmann::json::object(), *device_, session_);
  }
  products_ = nn::Products::from_json(costs.products);
  apply_costs(costs, whole_);
  // What this run was planned with; the cache may hold other models as well.
  costs_ = costs;
  std::erase_if(costs_.rows, [&](const auto& row) {
    const auto& nodes = whole_.model.graph.nodes;
    const std::string& precision = config_.train.precision;
    return row.first != plan::step_cost_key("norm", precision) &&
           row.first != plan::step_cost_key(config_.optimizer.name, precision) &&
           std::none_of(nodes.begin(), nodes.end(), [&](const plan::NodeSpec& node) {
             for (int k = 0; k < node.keep_options(); ++k) {
               if (plan::cost_key_of(node, k) == row.first) return true;
             }
             return false;
           });
  });
  choice_ = options_.given_programs.empty()
                ? choose_together(whole_, own_stage, floor, budget_, setup_, session_)
                : given_programs(options_.given_programs, whole_, budget_, setup_, session_);
  program_ = program_of_rank(setup_, choice_.program, session_.rank());
  choice_.evaluation = program_of_rank(setup_, std::move(choice_.evaluation), session_.rank());
  program_.seconds = seconds_of_step(setup_, program_, session_);
  largest_planned_peak_ = session_.all_reduce_max(std::vector{program_.peak_bytes})[0];
  saving_ = agree_on_saving(setup_, choice_, program_, budget_, session_);
}

// Who keeps the others waiting is said after a minute, or sooner where waits end sooner.
void Trainer::watch_waits() {
  constexpr double first_line = 60;
  const auto limit = static_cast<double>(config_.run.timeout);
  phase_->set("the start of the run");
  session_.watch_waits(limit > 0 ? std::min(first_line, limit / 2) : first_line, limit,
                       [phase = phase_] { return phase->text(); });
}

// Parameters alone: the optimizer begins anew.
void Trainer::load_initial() {
  if (initial_.checkpoint.empty()) return;
  say_difference(compare_tensors(initial_.checkpoint, parameter_names(initial_.manifest),
                                 tensor_names(whole_.model.graph, {}), options_.allowed));
  load_checkpoint(initial_.checkpoint, initial_.manifest, setup_.model, {}, state_,
                  initial_.manifest.tensors.size(), options_.allowed);
}

void Trainer::say_difference(const TensorDifference& difference) {
  if (!difference.missing.empty()) {
    say(fmt::format("note: {} tensors begin with the values of step 0: {}\n",
                    difference.missing.size(), fmt::join(difference.missing, ", ")));
  }
  if (!difference.unused.empty()) {
    say(fmt::format("note: {} tensors of the checkpoint are left behind: {}\n",
                    difference.unused.size(), fmt::join(difference.unused, ", ")));
  }
}

// With the copy that checkpoints are written from: where the processor computes its bytes are the
// tier's, and what lasts, activations and all else have the rest.
void Trainer::make_tier() {
  const bool counted = saving_.asynchronous && !saving_.on_host;
  tier_ = device_->make_tier(program_.budget_bytes() + (counted ? choice_.reserved_bytes : 0));
  if (!saving_.asynchronous) return;
  const auto make = [&] { saved_copy_ = at::empty({saving_.copy_bytes}, at::kByte); };
  if (counted) {
    const exec::DeviceScope scope(*tier_);
    make();
    saved_copy_bytes_ = tier_->set_live_apart();
  } else {
    const exec::HostScope scope;
    make();
    saved_copy_bytes_ = static_cast<std::int64_t>(saved_copy_.nbytes());
  }
}

void Trainer::make_state() {
  phase_->set("making or loading the state");
  optimizer_ = optim::make_optimizer(config_);
  make_tier();
  phase_->set_detail([tier = tier_.get()] { return tier->activity(); });
  {
    const exec::DeviceScope scope(*tier_);
    state_ = exec::initial_state(device_->compute(), setup_.model, setup_.declaration.precision,
                                 static_cast<std::uint64_t>(config_.train.seed), program_,
                                 device_->staging());
  }
  session_.agree([&] { below_ = make_lower_tiers(setup_, program_, *device_, state_); });
  session_.agree([&] {
    if (start_.checkpoint.empty()) {
      load_initial();
      return;
    }
    const auto names = tensor_names(whole_.model.graph, optimizer_->states());
    say_difference(
        compare_tensors(start_.checkpoint, tensor_names(start_.manifest), names, options_.allowed));
    load_checkpoint(start_.checkpoint, start_.manifest, setup_.model, optimizer_->states(), state_,
                    names.size(), options_.allowed);
  });
  {
    const exec::DeviceScope scope(*tier_);
    exec::gather_parameters(state_, axes_->data());
  }
  if (!initial_.checkpoint.empty()) {
    say(fmt::format("starts from the parameters of {} (step {})\n", initial_.checkpoint,
                    initial_.step));
  } else if (!options_.init_from.empty()) {
    say("note: the run goes on, so --init-from is not looked at\n");
  }
  if (options_.allowed.any() && start_.checkpoint.empty() && initial_.checkpoint.empty())
    say("note: the run begins without a checkpoint, so no tensor is missing or unused\n");
  if (!start_.checkpoint.empty()) {
    say(fmt::format("continuing from {} (step {} of {})\n", start_.checkpoint, start_.step,
                    config_.train.steps));
    if (start_.manifest.threads != threads_) {
      say(
          fmt::format("note: the checkpoint was made with {} threads a rank, this run has {}: last "
                      "bits may differ\n",
                      start_.manifest.threads, threads_));
    }
    if (start_.manifest.sums != axes_->data_sums()) {
      say("note: the checkpoint's run summed over data ranks in another order or type: last bits "
          "differ\n");
    }
  }
  session_.agree([&] {
    if (!first_rank_) return;
    lock_->check();
    prepare_run_directory(config_);
    if (const auto tokenizer = workload_->tokenizer())
      save_tokenizer(config_.run.directory, *tokenizer);
    keeper_.emplace(config_.run.directory, [&](const std::string& text) { warn(text); });
    if (!start_.checkpoint.empty()) keeper_->started_from(start_.step);
    const nlohmann::ordered_json choices = {{"format", "garonne.choices"},
                                            {"version", 1},
                                            {"threads", threads_},
                                            {"products", products_.to_json()}};
    write_file_durably(config_.run.directory + "/choices.json", choices.dump(1) + "\n");
    write_file_durably(config_.run.directory + "/costs.json", plan::to_json(costs_).dump(1) + "\n");
  });
  machine_ = {.device = &device_->device(),
              .tier = tier_.get(),
              .staging = device_->staging(),
              .captures = device_->captures(),
              .step_numbers = device_->step_numbers(),
              .host = below_.host_memory(),
              .disk = below_.disk.get(),
              .state = &state_,
              .products = &products_,
              .optimizer = optimizer_.get(),
              .data = axes_->data(),
              .tensor = axes_->tensor(),
              .pipeline = axes_->pipeline(),
              .tied = axes_->tied(),
              .world = axes_->world(),
              .session = &session_,
              .watch_gradient = {}};
}

exec::StepOutputs Trainer::run_step(std::int64_t step) {
  exec::StepInputs inputs;
  inputs.seed = static_cast<std::uint64_t>(config_.train.seed);
  inputs.step = step;
  inputs.loss_scale = static_cast<double>(config_.train.micro_batch) /
                      static_cast<double>(config_.train.global_batch);
  inputs.learning_rate = optim::learning_rate_at(config_, step);
  inputs.clip_norm = config_.optimizer.clip_norm;
  inputs.load = [&](int micro_batch) { return stream_->next(micro_batch); };
  inputs.before = [&](bool updates) { stop_->gate().pass(step, updates); };
  GiveUp unless_done(stop_->gate());
  exec::StepOutputs outputs = executor_->run(inputs);
  unless_done.dismiss();
  return outputs;
}

std::optional<double> Trainer::validate() {
  if (validation_micro_batches_ == 0) return std::nullopt;
  phase_->set(fmt::format("the validation after step {}", running_step_));
  return validation_loss(setup_, choice_.evaluation, machine_, *workload_, reader_,
                         validation_micro_batches_, session_, peak_bytes_);
}

StepMetrics Trainer::metrics_of(const exec::StepOutputs& outputs, std::int64_t step,
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
  if (costs_.product_roof > 0)
    metrics.utilisation = operations_of_rank_ / metrics.seconds / costs_.product_roof;
  return metrics;
}

// As the median of the last steps went.
double Trainer::seconds_left(std::int64_t step) const {
  constexpr std::ptrdiff_t most = 64;
  const auto count = std::min(most, static_cast<std::ptrdiff_t>(step_seconds_.size()));
  std::vector<double> seconds(step_seconds_.end() - count, step_seconds_.end());
  const auto median = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), median, seconds.end());
  return *median * static_cast<double>(config_.train.steps - step);
}

// The last one is waited for: nothing is left to do meanwhile.
void Trainer::save(std::int64_t step, bool last) {
  phase_->set(fmt::format("the checkpoint of step {}", step));
  if (saver_->can_begin() && !last) return saver_->begin(step);
  const SavedStep saved = saver_->save(step);
  say(fmt::format("step {:>7}  checkpoint {} ({:.1f} s)\n", step,
                  checkpoint_path(config_.run.directory, step), saved.seconds));
}

// `in_the_way`: the next one is due.
void Trainer::finish_saving(bool in_the_way) {
  const auto start = Clock::now();
  phase_->set("the checkpoint that is being written");
  const SavedStep saved = saver_->finish();
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

void Trainer::write_programs() const {
  const std::string folder = options_.program_directory.empty() ? config_.run.directory + "/program"
                                                                : options_.program_directory;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  write_file_durably(
      fmt::format("{}/rank_{}.json", folder, session_.rank()),
      plan::to_json(program_, {session_.rank()}, outputs_.measurements).dump(1) + "\n");
}

void Trainer::say_note() {
  if (const std::string note = executor_->take_note(); !note.empty()) say(note + "\n");
}

void Trainer::say_summary() {
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
  const auto median = step_seconds_.begin() + static_cast<std::ptrdiff_t>(step_seconds_.size() / 2);
  std::nth_element(step_seconds_.begin(), median, step_seconds_.end());
  say(summary_text(peaks, budget_, program_, *median, outputs_));
}

std::optional<std::span<std::byte>> Trainer::room_for_copy() {
  if (!saving_.asynchronous) return std::nullopt;
  return std::span(static_cast<std::byte*>(saved_copy_.mutable_data_ptr()), saved_copy_.nbytes());
}

// What the loop of steps needs, once there is a state.
void Trainer::begin() {
  reader_ = std::make_shared<data::Reader>();
  stream_ =
      workload_->open(reader_, Part::Training,
                      training_order(config_, *workload_, program_, setup_.model, start_.step + 1));
  if (!options_.gradients_directory.empty()) {
    capture_.emplace(setup_.model, state_);
    machine_.watch_gradient = [&](int parameter, const at::Tensor& gradient) {
      capture_->take(parameter, gradient);
    };
  }
  executor_.emplace(setup_.model, program_, machine_);
  if (device_->kind() == DeviceKind::Cuda)
    session_.agree([&] { executor_->use_graphs(graph_use(config_)); });
  session_.agree([&] {
    if (first_rank_)
      metrics_file_.emplace(config_.run.directory, start_.step,
                            [&](const std::string& text) { warn(text); });
  });
  if (!options_.trace.path.empty()) tracer_.emplace(options_.trace, start_.step + 1, program_);
  slow_ranks_.emplace(program_, setup_.grid.coordinates_of(session_.rank()).pipeline, session_);
  gauges_ = {.run = config_.run.directory,
             .version = version_string(),
             .ranks = session_.size(),
             .last_step = config_.train.steps,
             .saved_step = start_.step,
             .started_at = seconds_since_1970() - seconds_since(started_),
             .step = {},
             .validation_loss = {}};
  Manifest manifest;
  manifest.config = config_to_toml(config_);
  manifest.threads = threads_;
  manifest.products = products_.to_json();
  manifest.data = workload_->manifest();
  manifest.sums = axes_->data_sums();
  saver_.emplace(SavedRun{.config = config_,
                          .setup = setup_,
                          .state = state_,
                          .states = optimizer_->states(),
                          .manifest = std::move(manifest),
                          .keeper = keeper_ ? &*keeper_ : nullptr,
                          .copy_room = room_for_copy()},
                 start_.step, session_, *stop_);
  WatchedTraining watched{.first_step = start_.step,
                          .last_step = config_.train.steps,
                          .saved_step = [this] { return saver_->saved_step(); },
                          .save = nullptr,
                          .abandon = [this] { saver_->abandon(); }};
  // A process that is a copy of this one has nothing of a GPU.
  if (device_->kind() != DeviceKind::Cuda) {
    watched.save = [this](std::int64_t step, FileMeeting& meeting) {
      saver_->save_apart(step, unwritten_, meeting);
    };
    if (below_.disk) watched.save_uses = {below_.disk->descriptor()};
  }
  stop_->begin_training(std::move(watched));
  if (first_rank_) bar_ = std::make_unique<Progress>("train", config_.train.steps);
  say_note();
  double operations = 0;
  for (const double mine : session_.all_gather(
           std::vector<double>{declared_operations(setup_.model.graph) * program_.micro_batches}))
    operations += mine;
  operations_of_rank_ = operations / session_.size();
  say(fmt::format("ready after {:.2f} s\n", seconds_since(started_)));
}

// A step and what follows it; false where it is the last one.
bool Trainer::train_step(std::int64_t step) {
  const auto start = Clock::now();
  const auto traced_from = std::chrono::system_clock::now();
  running_step_ = step;
  phase_->set(fmt::format("step {}", step), "between two instructions");
  outputs_ = run_step(step);
  unwritten_ = metrics_of(outputs_, step, seconds_since(start));
  stop_->gate().finish(step);
  if (capture_ && step == start_.step + 1) {
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
  const auto together = session_.all_reduce_max(std::vector<std::int64_t>{
      program_.peak_bytes == largest_planned_peak_ ? outputs_.peak_bytes : 0,
      (stop_here || stop_->requested()) ? 1 : 0,
      static_cast<std::int64_t>(outputs_.data_seconds * nanoseconds), saver_->progress()});
  stopping_ = together[1] != 0;
  step_seconds_.push_back(seconds_since(start));

  StepMetrics metrics = metrics_of(outputs_, step, step_seconds_.back());
  metrics.peak_bytes = together[0];
  metrics.data_seconds = static_cast<double>(together[2]) / nanoseconds;
  metrics.checkpoint_seconds = std::exchange(checkpoint_seconds_, 0);
  metrics.validation_seconds = std::exchange(validation_seconds_, 0);
  if (step == start_.step + 1 && metrics_file_) {
    metrics.start = {seconds_since(started_) - step_seconds_.back(), metrics_file_->lost_steps(),
                     metrics_file_->lost_seconds()};
  }
  for (const SlowRankWatch::Found& found : slow_ranks_->after_step(outputs_)) {
    warn(describe(found));
    metrics.slow_ranks.push_back({found.rank.rank, found.place, found.rank.times});
  }
  if (tracer_ && tracer_->take(step, traced_from, seconds_since(start), outputs_, session_))
    say(fmt::format("trace of {} steps: {}\n", tracer_->traced(), tracer_->path()));
  say_note();
  const bool last = step == config_.train.steps || stopping_;
  // The first steps tell whether a run goes as it should.
  constexpr std::int64_t always_told = 3;
  if (last || step % options_.log_every == 0 || step - start_.step <= always_told)
    say(step_text(metrics, config_.train.steps, seconds_left(step)));
  const bool due = config_.evaluation.every > 0 && step % config_.evaluation.every == 0;
  const auto before_validation = Clock::now();
  if (due || last) metrics.validation_loss = validate();
  if (metrics.validation_loss) {
    validation_seconds_ = seconds_since(before_validation);
    gauges_.validation_seconds += validation_seconds_;
  }
  if (metrics.validation_loss)
    say(fmt::format("step {:>7}  validation loss {:.4f} {}\n", step, *metrics.validation_loss,
                    workload_->loss_unit()));
  session_.agree([&] {
    const auto lock = stop_->gate().change_outside();
    if (metrics_file_) {
      lock_->check();
      metrics_file_->append(metrics);
      gauges_.step = metrics;
      if (metrics.validation_loss) gauges_.validation_loss = metrics.validation_loss;
      show_state(false);
    }
    unwritten_.reset();
  });
  const bool to_save =
      last || (config_.checkpoint.every > 0 && step % config_.checkpoint.every == 0);
  const bool to_finish = saver_->under_way() && (to_save || together[3] != Saver::Writing);
  if (to_save || to_finish) {
    const auto before_saving = Clock::now();
    if (to_finish) finish_saving(to_save && !last);
    if (to_save) save(step, last);
    checkpoint_seconds_ = seconds_since(before_saving);
    gauges_.checkpoint_seconds += checkpoint_seconds_;
  }
  if (bar_) bar_->advance_to(step);
  return !last;
}

// For whoever watches from outside; once a second is often enough for them. On rank 0.
void Trainer::show_state(bool now) {
  if (options_.prometheus_file.empty() || (!now && seconds_since(shown_) < 1)) return;
  shown_ = Clock::now();
  gauges_.saved_step = saver_->saved_step();
  write_file_durably(options_.prometheus_file, prometheus_text(gauges_));
}

ExitCode Trainer::end() {
  if (bar_) bar_->clear();
  if (tracer_ && tracer_->finish(session_))
    say(fmt::format("trace of {} steps: {}\n", tracer_->traced(), tracer_->path()));
  session_.agree([&] {
    write_programs();
    if (first_rank_) show_state(true);
  });
  say_summary();
  say(end_text(config_, running_step_, seconds_since(started_), workload_->item() == token_item));
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

ExitCode Trainer::run() {
  if (first_rank_)
    lock_.emplace(config_.run.directory, [&](const std::string& text) { warn(text); });
  stop_ = std::make_unique<StopWatch>(session_, config_.run.directory, [this] {
    if (lock_) lock_->let_go();
  });
  say(first_text(config_, session_.size()));
  say(stop_->how_to_stop());
  watch_waits();
  prepare();
  if (first_rank_) remove_left_over(config_.run.directory);
  if (start_.step >= config_.train.steps) {
    say(fmt::format("step {} of {} is done already; set train.steps higher to go on\n", start_.step,
                    config_.train.steps));
    return ExitCode::Done;
  }
  if (first_rank_) forget_stopped(config_.run.directory);
  plan();
  session_.agree([&] { device_->pin_recorded(setup_.model, program_); });
  pin_host_tier(program_, *device_);
  axes_ = std::make_unique<Axes>(setup_, program_, *device_, session_);
  make_state();
  if (first_rank_) {
    say(start_text({config_, whole_, setup_, choice_, program_, products_, *workload_, threads_,
                    session_.ranks_on_node()}));
  }
  say(describe_memory(setup_, choice_, budget_,
                      saving_.asynchronous && !saving_.on_host ? saving_.copy_bytes : 0, session_));
  say(describe_saving(saving_));
  say(describe_lower_tiers(whole_));
  if (const std::string sums = axes_->data_sums(); !sums.empty())
    say(fmt::format("sums      {}\n", sums));
  begin();
  std::int64_t step = start_.step + 1;
  try {
    while (train_step(step)) ++step;
  } catch (const dist::AgreedError&) {
    // All ranks are here, and what is being written is of a step before.
    try {
      if (saver_->under_way()) finish_saving(false);
    } catch (const dist::AgreedError& other) {
      warn(other.what());
    }
    throw;
  }
  return end();
}

}  // namespace

ExitCode train(const RunConfig& config, dist::Session& session, const TrainOptions& options) {
  return Trainer(config, session, options).run();
}

}  // namespace garonne::train
