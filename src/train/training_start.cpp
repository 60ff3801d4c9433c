#include "train/training_run.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/counted.hpp"
#include "base/file.hpp"
#include "base/output_file.hpp"
#include "base/seconds.hpp"
#include "base/version.hpp"
#include "plan/program/rotated_step.hpp"
#include "train/checkpoint/checkpoint_space.hpp"
#include "train/evaluation/evaluation.hpp"
#include "train/initial_parameters.hpp"
#include "train/plans/given_programs.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/plans/grid_table.hpp"
#include "train/plans/saved_programs.hpp"
#include "train/run/run_tokenizer.hpp"
#include "train/setup/rank_agreement.hpp"
#include "train/setup/rank_start.hpp"
#include "train/setup/start_check.hpp"
#include "train/setup/whole_budget.hpp"
#include "train/stop/stop_file.hpp"
#include "train/training_text.hpp"
#include "train/workload/training_order.hpp"

namespace garonne::train {
namespace {

// What is written where the user says. On rank 0, whose files they are.
void expect_outputs(const TrainOptions& options, const std::string& run_directory) {
  expect_gradients_folder(options.gradients_directory, run_directory);
  if (!options.trace.path.empty()) {
    expect_output("--trace", options.trace.path,
                  text_output("a trace of Garonne", "{\"displayTimeUnit\":\"ms\",\"traceEvents\""));
  }
  if (!options.prometheus_file.empty()) {
    expect_output("--prometheus", options.prometheus_file,
                  text_output("the state of a run for Prometheus", "# HELP garonne_"));
  }
  expect_program_folder("--program", options.program_directory);
}

}  // namespace

// Who keeps the others waiting is said after a minute, or sooner where waits end sooner.
void TrainingRun::watch_waits() {
  constexpr double first_line = 60;
  const auto limit = static_cast<double>(config_.run.timeout);
  phase_->set("the start of the run");
  session_.watch_waits(limit > 0 ? std::min(first_line, limit / 2) : first_line, limit,
                       [phase = phase_] { return phase->text(); });
}

// Everything that can be wrong with what the user gave, agreed by all ranks before anything is
// written.
void TrainingRun::prepare() {
  threads_ = agree_on_run(config_, session_);
  device_ = std::make_unique<RunDevice>(config_, session_);
  budget_ = device_->budget_bytes(config_, session_);
  say(device_->text());
  for (const std::string& text :
       check_start(session_, device_->kind() == DeviceKind::Cuda ? 1 : threads_, *device_))
    warn(text);
  dist::Facts contents;
  const int ranks_on_node = ranks_on_largest_node(session_);
  session_.agree([&] {
    expect_storable(config_);
    if (first_rank_) expect_outputs(options_, config_.run.directory);
    check_grid(config_, session_.size());
    lost_parting_ =
        await_parting(config_.run.directory, [&](const std::string& text) { say(text + "\n"); });
    workload_ = open_workload(config_);
    contents = workload_->contents();
    contents_ = hashes_by_key(contents);
    whole_ = make_setup(config_, workload_->facts(), threads_, session_.rank());
    whole_.ranks_on_node = ranks_on_node;
  });
  agree_on_lower_budgets(whole_, budget_, session_);
  session_.agree([&] {
    setup_ = setup_of_stage(whole_, whole_.grid.coordinates_of(session_.rank()).pipeline);
  });
  const RunConfig as_saved = with_paths_of_first_rank(config_, session_);
  dist::agree_on(session_, [&] { return contents; });
  // Before anybody looks at what is in the directory.
  session_.agree([&] {
    take_lock();
    if (!not_locked_) stop_->watch_directory();
  });
  const AllowedChanges allowed = {
      .other_tensors = options_.allowed.any(), .keys = options_.changes, .contents = contents_};
  session_.agree([&] {
    start_ = find_starting_point(
        as_saved, [&](const std::string& text) { warn(text); }, allowed);
    for (const KeyChange& change : start_.changes) say("note: " + to_text(change) + "\n");
    if (not_locked_ && start_.step < config_.train.steps) throw *not_locked_;
    expect_allowed_difference(as_saved, allowed);
    expect_traced_step();
  });
  session_.agree([&] {
    const auto note = [&](const std::string& text) { say("note: " + text + "\n"); };
    expect_same_tokenizer(start_, *workload_, config_.data.path, note);
    if (!start_.checkpoint.empty()) {
      workload_->expect_like(start_.manifest.data, start_.checkpoint, config_.data.path);
      find_changed_contents(as_saved, allowed);
    }
    find_beginning();
    if (initial_.checkpoint.empty()) return;
    expect_same_tokenizer(initial_, *workload_, config_.data.path, note);
    expect_same_model(initial_, config_, whole_.model, whole_.declaration.precision,
                      options_.allowed, options_.init_changes, note);
    // Another region, or another grid, may be what a model is trained on further for.
    const std::string difference =
        workload_->difference_from(initial_.manifest.data, initial_.checkpoint);
    if (!difference.empty())
      note(fmt::format("{} {}, whose model this run begins with", config_.data.path, difference));
  });
  dist::agree_on(session_, [&] { return checkpoint_facts(start_); });
  dist::agree_on(session_, [&] { return checkpoint_facts(initial_); });
  session_.set_coordinates(to_string(setup_.grid.coordinates_of(session_.rank())));
  validation_micro_batches_ =
      validation_micro_batches(config_, workload_->samples(Part::Validation));
}

// A run that was killed before its first checkpoint begins again with what it began with.
void TrainingRun::find_beginning() {
  const std::string& directory = config_.run.directory;
  beginning_ = beginning_of_run(directory);
  if (!start_.checkpoint.empty()) {
    // In a directory that a model was imported into.
    if (!beginning_ && start_.step == 0)
      beginning_ = beginning_with(start_, start_.checkpoint, options_.allowed, {});
    return;
  }
  if (options_.init_from.empty()) {
    if (!beginning_) return;
    try {
      initial_ = open_beginning(directory, *beginning_);
    } catch (const IoError& error) {
      throw IoError(
          directory,
          fmt::format("never saved a checkpoint, and cannot begin again with what it began "
                      "with: {}; or give --init-from",
                      error.what()));
    }
    const auto append = [](const std::vector<std::string>& more, std::vector<std::string>& list) {
      list.insert(list.end(), more.begin(), more.end());
    };
    append(beginning_->missing, options_.allowed.missing);
    append(beginning_->unused, options_.allowed.unused);
    append(beginning_->changes, options_.init_changes);
    say(
        fmt::format("note: the run in {} began with {}, and does again; to begin "
                    "with the seed's, give another run.directory\n",
                    directory, to_text(*beginning_)));
    return;
  }
  initial_ = initial_point(options_.init_from, [&](const std::string& text) { warn(text); });
  Beginning given =
      beginning_with(initial_, options_.init_from, options_.allowed, options_.init_changes);
  if (beginning_ && beginning_->manifest != given.manifest) {
    say(
        fmt::format("note: the run in {} began with {}; without a checkpoint of its own it begins "
                    "with others now\n",
                    directory, to_text(*beginning_)));
  }
  beginning_ = std::move(given);
}

// Where nothing can be written, a run that is done may still be found done.
void TrainingRun::take_lock() {
  if (!lock_) return;
  try {
    lock_->take();
  } catch (const IoError& failure) {
    if (!lock_->unwritable()) throw;
    not_locked_ = failure;
  }
}

// A run that is done reads none of them.
void TrainingRun::find_changed_contents(const RunConfig& as_saved, const AllowedChanges& allowed) {
  if (start_.step >= config_.train.steps) return;
  for (KeyChange& change :
       changed_contents(as_saved, start_.step, start_.manifest.data, start_.changes, allowed)) {
    say("note: " + to_text(change) + "\n");
    start_.changes.push_back(std::move(change));
  }
}

// Where no tensor is missing or unused, the options that allow it allow no other keys either.
void TrainingRun::expect_allowed_difference(const RunConfig& as_saved, AllowedChanges changes) {
  const AllowedTensors& allowed = options_.allowed;
  if (!allowed.any() || start_.checkpoint.empty()) return;
  const auto here = tensor_names(whole_.model.graph, optim::make_optimizer(config_)->states());
  const auto there = tensor_names(start_.manifest);
  for (const std::string& name : patterns_of_none(allowed.missing, here))
    warn(fmt::format("--allow-missing {}: the model has no such tensor", name));
  for (const std::string& name : patterns_of_none(allowed.unused, there))
    warn(fmt::format("--allow-unused {}: the checkpoint has no such tensor", name));
  const TensorDifference difference = compare_tensors(start_.checkpoint, there, here, allowed);
  if (!difference.missing.empty() || !difference.unused.empty()) return;
  changes.other_tensors = false;
  static_cast<void>(changes_since(start_, as_saved, changes));
}

void TrainingRun::expect_traced_step() const {
  const std::int64_t last = last_step_here();
  if (options_.trace.path.empty() || options_.trace.first_step <= last) return;
  if (start_.step >= config_.train.steps) return;
  throw ConfigError("--trace-from", std::to_string(options_.trace.first_step),
                    fmt::format("is after step {}, the last of this start; give one from {} on",
                                last, start_.step + 1));
}

std::int64_t TrainingRun::last_step_here() const {
  const std::int64_t steps = config_.train.steps;
  const std::int64_t after = config_.train.stop_after;
  return after > 0 ? std::min(steps, start_.step + after) : steps;
}

// States go by their names, which optimizers share.
void TrainingRun::say_states_of_another_optimizer() {
  const std::string before = saved_optimizer(start_);
  if (before == config_.optimizer.name) return;
  const auto there = tensor_names(start_.manifest);
  std::vector<std::string> kept;
  for (const StateSpec& state : optimizer_->states()) {
    if (std::any_of(there.begin(), there.end(),
                    [&](const std::string& name) { return name.ends_with("." + state.name); }))
      kept.push_back(state.name);
  }
  if (kept.empty()) return;
  warn(fmt::format(
      "the checkpoint is of {} and this run of {}: {} of the one goes on as that of the "
      "other; --init-from in another run.directory begins without",
      before, config_.optimizer.name, fmt::join(kept, ", ")));
}

void TrainingRun::plan() {
  phase_->set("measuring and planning");
  // A budget that is too small is said before anything is measured.
  const int own_stage = setup_.grid.coordinates_of(session_.rank()).pipeline;
  StageFloor floor;
  if (options_.given_programs.empty())
    floor = floor_of_rank(whole_, own_stage, budget_, device_->kept_bytes(), session_);
  compute_ = start_computing(threads_, *device_, session_);
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
  costs_ = costs_of_setup(whole_, costs);
  session_.agree([&] {
    work_ = model_work(whole_.config, whole_.facts, threads_, whole_.declaration.device,
                       costs_.product_roof);
  });
  choice_ = plan_beside_libraries(device_->kept_bytes(), [&] {
    return options_.given_programs.empty()
               ? choose_together(whole_, own_stage, floor, budget_, setup_, session_)
               : given_programs(options_.given_programs, whole_, budget_, setup_, session_);
  });
  program_ = program_of_rank(setup_, choice_.program, session_.rank());
  choice_.evaluation = program_of_rank(setup_, std::move(choice_.evaluation), session_.rank());
  program_.seconds = seconds_of_step(setup_, program_, session_);
  largest_planned_peak_ = session_.all_reduce_max(std::vector{program_.peak_bytes})[0];
  saving_ = agree_on_saving(setup_, choice_, program_, budget_, session_);
}

// Parameters alone: the optimizer begins anew.
void TrainingRun::load_initial() {
  if (initial_.checkpoint.empty()) return;
  say_difference(compare_tensors(initial_.checkpoint, parameter_names(initial_.manifest),
                                 tensor_names(whole_.model.graph, {}), options_.allowed));
  load_checkpoint(initial_.checkpoint, initial_.manifest, setup_.model, {}, state_,
                  initial_.manifest.tensors.size(), options_.allowed);
}

void TrainingRun::say_difference(const TensorDifference& difference) {
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
void TrainingRun::make_tier() {
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

void TrainingRun::make_state() {
  phase_->set("making or loading the state");
  optimizer_ = optim::make_optimizer(config_);
  make_tier();
  show_instructions(false);
  state_ = first_state(setup_, program_, *device_, *tier_);
  session_.agree([&] { below_ = make_lower_tiers(setup_, program_, *device_, state_); });
  session_.agree([&] { load_state(); });
  gather_parameters(state_, *axes_, *tier_);
  say_where_it_begins();
  session_.agree([&] {
    if (first_rank_) begin_run_directory();
  });
  resources_ = resources_of({.device = *device_,
                             .tier = *tier_,
                             .state = state_,
                             .products = products_,
                             .optimizer = optimizer_.get(),
                             .axes = axes_.get(),
                             .below = &below_,
                             .session = &session_});
}

// From the checkpoint that the run goes on from, or what it is begun with.
void TrainingRun::load_state() {
  if (start_.checkpoint.empty()) {
    load_initial();
    return;
  }
  const auto names = tensor_names(whole_.model.graph, optimizer_->states());
  say_difference(
      compare_tensors(start_.checkpoint, tensor_names(start_.manifest), names, options_.allowed));
  load_checkpoint(start_.checkpoint, start_.manifest, setup_.model, optimizer_->states(), state_,
                  names.size(), options_.allowed);
  say_states_of_another_optimizer();
}

void TrainingRun::say_where_it_begins() {
  if (!initial_.checkpoint.empty()) {
    say(fmt::format("starts from the parameters of {} (step {})\n", initial_.checkpoint,
                    initial_.step));
  } else if (!options_.init_from.empty()) {
    say("note: the run goes on, so --init-from is not looked at\n");
  } else if (!options_.init_changes.empty()) {
    say("note: nothing is begun with --init-from, so --init-change is not looked at\n");
  }
  if (options_.allowed.any() && start_.checkpoint.empty() && initial_.checkpoint.empty())
    say("note: the run begins without a checkpoint, so no tensor is missing or unused\n");
  if (start_.checkpoint.empty()) return;
  say(fmt::format("continuing from {} (step {} of {})\n", start_.checkpoint, start_.step,
                  config_.train.steps));
  if (start_.manifest.threads != threads_) {
    say(
        fmt::format("note: the checkpoint was made with {} a rank, this run has {}: last "
                    "bits may differ\n",
                    counted(start_.manifest.threads, "thread"), threads_));
  }
  if (start_.manifest.sums != axes_->data_sums()) {
    say("note: the checkpoint's run summed over data ranks in another order or type: last bits "
        "differ\n");
  }
}

// On rank 0.
void TrainingRun::keep_checkpoints() {
  keeper_.emplace(config_.run.directory, [&](const std::string& text) { warn(text); });
  if (start_.checkpoint.empty()) return;
  keeper_->started_from(start_.step);
  keeper_->prune(start_.step, config_.checkpoint.keep, config_.checkpoint.keep_minutes);
}

// On rank 0.
void TrainingRun::begin_run_directory() {
  lock_->check_now();
  // Before anything else says that the run has begun.
  if (beginning_) save_beginning(config_.run.directory, *beginning_);
  // Before anything is written: the disk may have been full.
  keep_checkpoints();
  prepare_run_directory(config_);
  if (start_.step < config_.train.steps)
    expect_space_for_checkpoint(config_.run.directory, saving_.checkpoint_bytes);
  if (const auto tokenizer = workload_->tokenizer())
    save_tokenizer(config_.run.directory, *tokenizer);
  write_choices(config_.run.directory, threads_, products_, device_->gpu());
  write_file_durably(config_.run.directory + "/costs.json", plan::to_json(costs_).dump(1) + "\n");
}

std::optional<std::span<std::byte>> TrainingRun::room_for_copy() {
  if (!saving_.asynchronous) return std::nullopt;
  return std::span(static_cast<std::byte*>(saved_copy_.mutable_data_ptr()), saved_copy_.nbytes());
}

// What the loop of steps needs, once there is a state.
void TrainingRun::begin() {
  reader_ = std::make_shared<data::Reader>();
  stream_ =
      workload_->open(reader_, Part::Training,
                      training_order(config_, *workload_, program_, setup_.model, start_.step + 1));
  if (!options_.gradients_directory.empty()) {
    capture_.emplace(setup_.model, state_);
    resources_.watch_gradient = [&](int parameter, const at::Tensor& gradient) {
      capture_->take(parameter, gradient);
    };
  }
  executor_.emplace(setup_.model, program_, resources_);
  show_instructions(true);
  if (device_->kind() == DeviceKind::Cuda)
    session_.agree([&] { executor_->use_graphs(graph_use(config_)); });
  session_.agree([&] {
    if (first_rank_)
      metrics_file_.emplace(config_.run.directory, start_.step,
                            [&](const std::string& text) { warn(text); });
  });
  if (!options_.trace.path.empty())
    tracer_.emplace(options_.trace, start_.step + 1, last_step_here(), program_);
  if (first_rank_ && !options_.prometheus_file.empty()) {
    prometheus_.emplace(options_.prometheus_file, [&](const std::string& text) { warn(text); });
  }
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
  manifest.gpu = device_->gpu();
  manifest.products = products_.to_json();
  manifest.data = workload_->manifest();
  manifest.data["contents"] = contents_;
  manifest.changes = start_.manifest.changes;
  manifest.changes.insert(manifest.changes.end(), start_.changes.begin(), start_.changes.end());
  manifest.beginning = beginning_;
  manifest.sums = axes_->data_sums();
  saver_.emplace(SavedRun{.config = config_,
                          .setup = setup_,
                          .state = state_,
                          .states = optimizer_->states(),
                          .manifest = std::move(manifest),
                          .keeper = keeper_ ? &*keeper_ : nullptr,
                          .lock = lock_ ? &*lock_ : nullptr,
                          .copy_room = room_for_copy()},
                 start_.step, session_, *stop_);
  WatchedTraining watched{.first_step = start_.step,
                          .last_step = config_.train.steps,
                          .saved_step = [this] { return saver_->saved_step(); },
                          .save = nullptr,
                          .expect_own_directory =
                              [this] {
                                if (lock_) lock_->expect_own();
                              },
                          .abandon = [this] { saver_->abandon(); }};
  // A process that is a copy of this one has nothing of a GPU, and carries out nothing that a
  // rotated step has left.
  const bool may_leave =
      session_.all_reduce_max(std::vector<std::int64_t>{plan::is_rotated(program_) ? 1 : 0})[0] > 0;
  if (device_->kind() != DeviceKind::Cuda && !may_leave) {
    watched.save = [this](std::int64_t step, FileMeeting& meeting) {
      saver_->save_apart(step, unwritten_, meeting);
    };
    if (below_.disk) watched.save_uses = {below_.disk->descriptor()};
  }
  stop_->begin_training(std::move(watched));
  if (first_rank_) bar_ = std::make_unique<Progress>("train", config_.train.steps);
  say_note();
  say(fmt::format("ready after {:.2f} s\n", seconds_since(started_)));
}

}  // namespace garonne::train
