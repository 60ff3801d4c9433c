// Steps on a GPU that are recorded once and carried out as a whole. Recording a step goes through
// the Program as a plain step does: blocks are handed out and taken back, and what is put on the
// streams becomes a graph. What changes from step to step is read where it is: samples, loaded
// values and StepNumbers in memory whose addresses stay.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "device/lane_error.hpp"
#include "device/profiler_range.hpp"
#include "device/tier_memory.hpp"
#include "exec/executor.hpp"
#include "exec/executor_running.hpp"
#include "exec/host_access.hpp"
#include "nn/element_type.hpp"

namespace garonne::exec {
namespace {

// Steps before the recorded one: tables are there, libraries have loaded their code, and what they
// keep is kept.
constexpr int plain_steps_before = 2;
// Carried-out graphs that are timed, and what they have to save.
constexpr int judged_steps = 3;
constexpr double least_gain = 0.02;

// Shares of a step that the host takes for putting it, from which on a graph is worth a try: one
// that saves nothing is dropped again, and costs a recording, on ranks that exchange a recording of
// their exchanges.
constexpr double binding_share_alone = 0.2;
constexpr double binding_share_of_ranks = 0.5;

constexpr const char* step_activity = "the recorded step";

double milliseconds(double seconds) {
  return 1e3 * seconds;
}

std::int64_t pinned_of(std::int64_t bytes) {
  return round_up(bytes, device::host_allocation_granularity);
}

std::int64_t bytes_of(const plan::ValueSpec& spec) {
  return spec.elements() *
         static_cast<std::int64_t>(c10::elementSize(nn::scalar_type_of(spec.type)));
}

// Its report has two numbers for a training step.
bool reads_report(const plan::Instruction& instruction) {
  return instruction.operation == plan::Operation::Report && !instruction.arguments.inputs.empty();
}

}  // namespace

struct Executor::Recorded {
  struct Loaded {
    std::vector<Staging::Slot> values;  // by LoadedValue
    Staging::Slot samples;
  };

  device::Captures* captures = nullptr;
  int graph = 0;
  std::uint64_t layout = 0;             // of the tier, before and after the step
  std::shared_ptr<Running> running;     // of the recording; what kernels refer to
  std::map<std::size_t, Loaded> loads;  // by instruction
  std::map<std::size_t, std::vector<Staging::Slot>> reports;
  Staging::Slot numbers;
  int times = 0;
  double seconds = 0;  // of the fastest, without waits for data

  ~Recorded() {
    if (graph != 0) captures->drop(graph);
  }
};

Executor::~Executor() = default;

std::string graph_obstacle(const plan::Program& program, std::string_view transport) {
  for (const plan::Instruction& instruction : program.instructions) {
    if (instruction.channel && transport == "mpi")
      return "ranks exchange over MPI (grid.transport), which is no part of a graph";
    if (plan::is_copy(instruction.operation)) return "the step moves buffers between tiers";
  }
  return "";
}

std::int64_t recorded_pinned_bytes(const nn::Model& model, const plan::Program& program) {
  std::int64_t bytes = pinned_of(step_number_bytes);
  for (const plan::Instruction& instruction : program.instructions) {
    for (const plan::LoadedValue& value : instruction.arguments.loaded)
      bytes += pinned_of(bytes_of(model.graph.values[as_index(value.value)]));
    if (instruction.operation == plan::Operation::Load) bytes += pinned_of(8 * model.batch);
    if (!reads_report(instruction)) continue;
    for (const int id : instruction.arguments.inputs)
      bytes += pinned_of(program.buffers[as_index(id)].bytes);
  }
  return bytes + bytes / 16;
}

std::string Executor::obstacle() const {
  if (resources_.captures == nullptr || resources_.step_numbers == nullptr)
    return "what is put on the device is not recorded, as with GARONNE_SYNCHRONOUS=1";
  if (resources_.watch_gradient) return "gradients are watched";
  if (!updates_) return "the step updates nothing";
  if (resources_.optimizer->rates(1, 0).empty()) return "the optimizer takes its rates by value";
  const std::vector<dist::Transport*> used = transports();
  for (const dist::Transport* transport : used)
    expect(transport->can_be_recorded() || transport->name() == "mpi",
           fmt::format("whether graphs have {} is left open", transport->name()));
  return graph_obstacle(program_, used.empty() ? "" : used.front()->name());
}

// Those that the Program exchanges by, in an order that all ranks share.
std::vector<dist::Transport*> Executor::transports() const {
  std::vector<dist::Transport*> used;
  for (dist::Transport* const each : {resources_.data, resources_.tensor, resources_.pipeline,
                                      resources_.tied, resources_.world}) {
    if (each == nullptr || each->size() == 1 || std::ranges::find(used, each) != used.end())
      continue;
    used.push_back(each);
  }
  return used;
}

bool Executor::any_rank(bool here) const {
  if (resources_.session == nullptr) return here;
  return resources_.session->all_reduce_max(std::vector<std::int64_t>{here ? 1 : 0})[0] > 0;
}

double Executor::slowest(double seconds) const {
  if (resources_.session == nullptr) return seconds;
  return resources_.session->all_reduce_max(std::vector<double>{seconds})[0];
}

// That of the first rank that has one.
std::string Executor::reason_of_all(const std::string& here) const {
  dist::Session* const session = resources_.session;
  if (session == nullptr || session->size() == 1) return here;
  const std::int64_t mine = here.empty() ? session->size() : session->rank();
  const std::int64_t first = session->all_reduce_min(std::vector<std::int64_t>{mine})[0];
  if (first == session->size()) return "";
  const std::string reason = session->broadcast(here, static_cast<int>(first));
  return session->all_agree(here) ? reason : fmt::format("{} (rank {})", reason, first);
}

// Alike on all ranks.
void Executor::graphs_are_none(const std::string& reason, std::string_view advice) {
  if (graph_use_ == GraphUse::Always) {
    const auto refuse = [&] {
      throw ConfigError("run.graphs", "always", fmt::format("{}. {}", reason, advice));
    };
    if (resources_.session != nullptr) resources_.session->agree(refuse);
    refuse();
  }
  graphs_given_up_ = true;
  note_ = fmt::format("graphs    none: {}", reason);
}

void Executor::use_graphs(GraphUse use, std::optional<double> least_share_of_issue) {
  graph_use_ = use;
  least_share_of_issue_ = least_share_of_issue;
  if (use == GraphUse::Never) return;
  const std::string reason = reason_of_all(obstacle());
  if (!reason.empty()) graphs_are_none(reason, "Set it to \"auto\"");
}

std::string Executor::take_note() {
  return std::exchange(note_, "");
}

bool Executor::wants_graph() const {
  return graph_use_ != GraphUse::Never && !graphs_given_up_ &&
         plain_steps_.number >= plain_steps_before;
}

bool Executor::has_step_numbers() const {
  return resources_.step_numbers != nullptr && updates_ &&
         resources_.device->kind() == DeviceKind::Cuda;
}

// The step, and after it what the optimizer takes from it.
std::vector<std::byte> Executor::step_numbers(const StepInputs& inputs) const {
  const std::vector<double> rates = resources_.optimizer->rates(inputs.step, inputs.learning_rate);
  expect(rates.size() <= optim::most_rates, "an optimizer with more rates than there is room for");
  const auto step = static_cast<std::uint64_t>(inputs.step);
  std::vector<std::byte> bytes(sizeof step + rates.size() * sizeof(double));
  std::memcpy(bytes.data(), &step, sizeof step);
  if (!rates.empty())
    std::memcpy(bytes.data() + sizeof step, rates.data(), rates.size() * sizeof(double));
  return bytes;
}

// Of a plain step.
void Executor::fill_step_numbers(Running& running) const {
  if (!has_step_numbers()) return;
  const std::vector<std::byte> numbers = step_numbers(running.inputs);
  resources_.staging->fill(
      resources_.step_numbers, static_cast<std::int64_t>(numbers.size()),
      [&](std::int64_t first, std::span<std::byte> piece) {
        std::memcpy(piece.data(), numbers.data() + first, piece.size());
      },
      "the numbers of the step");
}

bool Executor::is_of_this_run(const StepInputs& inputs) const {
  const StepInputs& recorded = recorded_->running->inputs;
  return inputs.seed == recorded.seed && inputs.training == recorded.training &&
         inputs.loss_scale == recorded.loss_scale && inputs.clip_norm == recorded.clip_norm &&
         resources_.tier->layout() == recorded_->layout;
}

// A graph of one rank meets those of the others, so what makes one useless does so for all.
bool Executor::has_graph_for(const StepInputs& inputs) {
  if (recorded_) {
    if (!any_rank(!is_of_this_run(inputs))) return true;
    recorded_.reset();
  }
  return wants_graph() && record(inputs);
}

// False, with a note, where something was refused: nothing was carried out then.
bool Executor::record(const StepInputs& inputs) {
  const double least = least_share_of_issue_.value_or(
      transports().empty() ? binding_share_alone : binding_share_of_ranks);
  const bool binds = plain_steps_.issue_seconds >= least * plain_steps_.seconds;
  if (graph_use_ == GraphUse::Auto && !any_rank(binds)) {
    graphs_given_up_ = true;
    note_ = fmt::format(
        "graphs    none: the host puts a step on the GPU in {:.2f} ms of the {:.2f} ms that it "
        "takes",
        milliseconds(plain_steps_.issue_seconds), milliseconds(plain_steps_.seconds));
    return false;
  }
  std::string refused;
  try {
    record_step(inputs);
  } catch (const Error& error) {
    resources_.captures->drop_capture();
    for (dist::Transport* const transport : transports()) transport->drop_recording();
    recorded_.reset();
    refused = error.what();
  }
  refused = reason_of_all(refused);
  if (!refused.empty()) {
    recorded_.reset();
    graphs_are_none("a step cannot be recorded: " + refused, "Set it to \"never\"");
    return false;
  }
  note_ = fmt::format(
      "graphs    from this step on a step is carried out as one CUDA graph: the host put one on "
      "the "
      "GPU in {:.2f} ms of the {:.2f} ms that it took",
      milliseconds(plain_steps_.issue_seconds), milliseconds(plain_steps_.seconds));
  return true;
}

// Throws what is refused.
void Executor::record_step(const StepInputs& inputs) {
  StepInputs constant = inputs;
  constant.load = nullptr;
  constant.before = nullptr;
  device::Captures& captures = *resources_.captures;
  recorded_ = std::make_shared<Recorded>();
  recorded_->captures = &captures;
  recorded_->running = std::make_shared<Running>(constant, program_);
  start_running(*recorded_->running);
  recorded_->numbers = resources_.staging->hold(
      static_cast<std::int64_t>(step_numbers(inputs).size()), step_activity);
  for (std::size_t number = 0; number < program_.instructions.size(); ++number) {
    const plan::Instruction& instruction = program_.instructions[number];
    if (instruction.operation == plan::Operation::Load) {
      Recorded::Loaded& loaded = recorded_->loads[number];
      for (const plan::LoadedValue& value : instruction.arguments.loaded) {
        loaded.values.push_back(resources_.staging->hold(
            bytes_of(model_.graph.values[as_index(value.value)]), activities_[number]));
      }
      loaded.samples = resources_.staging->hold(8 * model_.batch, activities_[number]);
    }
    if (!reads_report(instruction)) continue;
    for (const int id : instruction.arguments.inputs) {
      const plan::Buffer& buffer = program_.buffers[as_index(id)];
      recorded_->reports[number].push_back(resources_.staging->hold(
          std::min<std::int64_t>(buffer.bytes, 2 * sizeof(double)), activities_[number]));
    }
  }
  recorded_->layout = resources_.tier->layout();
  const std::vector<dist::Transport*> exchanges = transports();
  for (dist::Transport* const transport : exchanges) transport->begin_recording();
  captures.begin_capture(step_activity);
  resources_.staging->put_in(resources_.step_numbers, recorded_->numbers, step_activity);
  for (std::size_t number = 0; number < program_.instructions.size(); ++number)
    put_recorded(number);
  for (dist::Transport* const transport : exchanges) transport->end_recording();
  recorded_->graph = captures.end_capture(step_activity);
  expect(resources_.tier->layout() == recorded_->layout, "a step leaves blocks of the tier behind");
}

void Executor::put_recorded(std::size_t number) {
  const plan::Instruction& instruction = program_.instructions[number];
  const std::string& activity = activities_[number];
  const device::ProfilerRange range(activity);
  const std::shared_ptr<Running>& running = recorded_->running;
  device::Captures& captures = *resources_.captures;
  const auto put = [&](Part kernels) {
    captures.put_kernels([this, number, running, kernels] {
      const at::NoGradGuard no_gradients;
      const DeviceScope scope(*resources_.tier);
      (this->*kernels)(number, *running);
    });
  };
  const auto tensor = [&](int id) -> const at::Tensor& { return running->buffers[as_index(id)]; };
  put(&Executor::begin);
  if (instruction.operation == plan::Operation::Load) {
    put(&Executor::make_recorded);
    const Recorded::Loaded& loaded = recorded_->loads.at(number);
    for (std::size_t k = 0; k < loaded.values.size(); ++k) {
      resources_.staging->put_in(tensor(instruction.arguments.loaded[k].buffer).data_ptr(),
                                 loaded.values[k], activity);
    }
    const std::span<std::byte> samples = loaded.samples.bytes();
    running->samples[as_index(instruction.micro_batch)] = {
        reinterpret_cast<const std::int64_t*>(samples.data()), samples.size() / 8};
  } else if (reads_report(instruction)) {
    const std::vector<Staging::Slot>& slots = recorded_->reports.at(number);
    for (std::size_t k = 0; k < slots.size(); ++k) {
      resources_.staging->put_out(
          slots[k], tensor(instruction.arguments.inputs[k]).const_data_ptr(), activity);
    }
  } else if (instruction.operation == plan::Operation::Wait) {
    await_transfer(as_index(instruction.completes), *running);
  } else {
    device::run_named(Lane::Compute, activity, [&] { put(&Executor::execute_recorded); });
    // What it starts is recorded once, by the transport.
    if (running->transfers[number].start) start_transfer(number, *running);
    if (blocks(instruction)) await_transfer(number, *running);
  }
  resources_.device->launched(Lane::Compute, activity);
  put(&Executor::end);
}

void Executor::make_recorded(std::size_t number, Running& running) {
  const plan::Instruction& instruction = program_.instructions[number];
  for (const plan::LoadedValue& value : instruction.arguments.loaded) {
    const plan::ValueSpec& spec = model_.graph.values[as_index(value.value)];
    make(instruction, value.buffer, at::empty(spec.shape, options(nn::scalar_type_of(spec.type))),
         running);
  }
}

void Executor::execute_recorded(std::size_t number, Running& running) {
  execute(program_.instructions[number], number, running);
}

// Nothing of an earlier step is under way, so the slots are free.
void Executor::load_recorded(Running& running) {
  for (const auto& [number, loaded] : recorded_->loads) {
    const plan::Instruction& instruction = program_.instructions[number];
    const HostBatch batch = load_batch(instruction.micro_batch, running);
    for (std::size_t k = 0; k < loaded.values.size(); ++k) {
      const plan::ValueSpec& spec =
          model_.graph.values[as_index(instruction.arguments.loaded[k].value)];
      const at::ScalarType type = nn::scalar_type_of(spec.type);
      if (spec.type == NumberType::Int64) {
        write_to(loaded.values[k].bytes(), type, loaded_values(batch.values, spec));
      } else {
        write_to(loaded.values[k].bytes(), type, loaded_values(batch.fields, spec));
      }
    }
    write_to(loaded.samples.bytes(), at::kLong, batch.samples);
  }
  std::ranges::copy(step_numbers(running.inputs), recorded_->numbers.bytes().begin());
}

void Executor::run_recorded(Running& running) {
  device::Device& device = *resources_.device;
  LanesEnd lanes(device);
  const device::ProfilerRange range(fmt::format("step {}, as a graph", running.inputs.step));
  const auto start = std::chrono::steady_clock::now();
  resources_.tier->set_activity(step_activity);
  last_exchange_ = -1;  // nobody sees those of a graph
  load_recorded(running);
  if (running.inputs.before) {
    running.inputs.before(false);
    running.inputs.before(true);
  }
  const std::vector<dist::Transport*> exchanges = transports();
  for (dist::Transport* const transport : exchanges)
    transport->begin_replay(step_activity, plain_steps_.seconds);
  device.wait(resources_.captures->launch(recorded_->graph, step_activity));
  for (dist::Transport* const transport : exchanges) transport->end_replay();
  StepOutputs& outputs = running.outputs;
  for (const auto& [number, slots] : recorded_->reports) {
    outputs.loss = read_from(slots.at(0).bytes(), at::kDouble).at(0);
    if (slots.size() > 1) outputs.gradient_norm = read_from(slots.at(1).bytes(), at::kDouble).at(0);
  }
  const StepOutputs& recorded = recorded_->running->outputs;
  outputs.peak_bytes = recorded.peak_bytes;
  // Within a graph nothing is timed: seconds are those of the last step without.
  outputs.measurements = plain_steps_.measurements;
  lanes.dismiss();
  for (const plan::Instruction& instruction : program_.instructions)
    expect_finite(instruction, running.inputs.step, outputs);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  const double seconds = taken.count() - outputs.data_seconds;
  recorded_->seconds = recorded_->times == 0 ? seconds : std::min(recorded_->seconds, seconds);
  if (++recorded_->times == judged_steps) judge_graph();
}

void Executor::judge_graph() {
  const double with = slowest(recorded_->seconds);
  const double without = slowest(plain_steps_.seconds);
  const std::string times = fmt::format("{:.2f} ms a step as a graph, {:.2f} ms without",
                                        milliseconds(with), milliseconds(without));
  if (graph_use_ == GraphUse::Always || with <= (1 - least_gain) * without) {
    note_ = fmt::format("graphs    {}", times);
    return;
  }
  recorded_.reset();
  graphs_given_up_ = true;
  note_ = fmt::format("graphs    dropped, since they save nothing: {}", times);
}

}  // namespace garonne::exec
