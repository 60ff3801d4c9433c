// How a step runs on a device: what is put on which lane, and what waits for what.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "dist/session.hpp"
#include "exec/executor.hpp"
#include "exec/executor_running.hpp"
#include "exec/host_access.hpp"
#include "exec/tier_room.hpp"
#include "nn/tensor_options.hpp"

namespace garonne::exec {

void expect_finite(const plan::Instruction& instruction, std::int64_t step,
                   const StepOutputs& outputs) {
  if (instruction.operation != plan::Operation::Report || instruction.arguments.inputs.size() != 2)
    return;
  const bool finite_loss = std::isfinite(outputs.loss);
  if (finite_loss && std::isfinite(outputs.gradient_norm)) return;
  const double number = finite_loss ? outputs.gradient_norm : outputs.loss;
  // These are sums over all ranks, so all of them see the same, and none has updated anything. What
  // is no number has another sign on another processor.
  throw dist::AgreedError(ExitCode::Refused,
                          fmt::format("step {}: the {} is {}; nothing was updated", step,
                                      finite_loss ? "gradient norm" : "loss",
                                      std::isnan(number) ? std::abs(number) : number));
}

Queue Executor::queue() const {
  return resources_.device->queue(Lane::Compute);
}

at::TensorOptions Executor::options(at::ScalarType type) const {
  return nn::tensor_options(queue(), type);
}

// Then what is loaded and reported is copied, by Compute as a GPU does it, since on the lanes of
// copies it would stand behind what the Program moves; and what is asynchronous is started by its
// lane. Where the memory is the host's, the host does all that where it stands.
bool Executor::memory_apart() const {
  return resources_.device->kind() == DeviceKind::Emulated;
}

StepOutputs Executor::run(const StepInputs& inputs) {
  const at::NoGradGuard no_gradients;
  if (carried_ && carried_->steps_in_a_row >= most_steps_in_a_row) flush();
  const auto running = std::make_shared<Running>(inputs, program_);
  start_running(*running);
  start_carried(*running);
  if (resources_.device->kind() == DeviceKind::Cuda && has_graph_for(inputs)) {
    run_recorded(*running);
  } else {
    run_plain(running);
  }
  resources_.tier->set_activity("");
  take_copy_seconds(*running);
  carry_over(*running);
  return std::move(running->outputs);
}

void Executor::run_plain(const std::shared_ptr<Running>& running) {
  switch (resources_.device->kind()) {
    case DeviceKind::Cpu:
      return run_here(*running);
    case DeviceKind::Emulated:
      return run_apart(running);
    case DeviceKind::Cuda:
      return run_on_gpu(*running);
  }
}

void Executor::flush() {
  if (!carried_) return;
  const at::NoGradGuard no_gradients;
  StepInputs inputs;
  inputs.step = carried_->numbers.step;
  const auto running = std::make_shared<Running>(inputs, program_);
  running->this_step = false;
  start_running(*running);
  start_carried(*running);
  run_plain(running);
  resources_.tier->set_activity("");
}

// From here on it is the step's: whatever ends it ends what was left to it.
void Executor::start_carried(Running& running) {
  if (!carried_) return;
  running.of_previous = carried_->numbers;
  running.steps_before = carried_->steps_in_a_row;
  running.lowered.merge(carried_->lowered);
  carried_.reset();
}

void Executor::carry_over(Running& running) {
  if (!rotated_) return;
  carried_ = std::make_unique<CarriedOver>();
  carried_->numbers = {running.inputs.step, running.inputs.learning_rate};
  carried_->steps_in_a_row = running.steps_before + 1;
  for (std::size_t id = 0; id < program_.buffers.size(); ++id) {
    if (!program_.buffers[id].carried) continue;
    const auto made = running.lowered.find(static_cast<int>(id));
    expect(made != running.lowered.end(),
           program_.buffers[id].name + " is not there to be carried");
    carried_->lowered.insert(running.lowered.extract(made));
  }
}

bool Executor::takes_part(const plan::Instruction& instruction, const Running& running) {
  return instruction.of_previous_step ? running.of_previous.step > 0 : running.this_step;
}

// Who measures has an entry for it.
void Executor::pass_over(std::size_t /*number*/, Running& running) {
  resources_.tier->reset_peak();
  running.start = std::chrono::steady_clock::now();
  measure(running);
}

void Executor::start_running(Running& running) const {
  for (const int id : static_buffers_.ids())
    running.buffers[as_index(id)] = static_buffers_.tensor(id);
  for (const auto& [id, lasting] : static_buffers_.lowered()) running.lowered[id] = *lasting;
}

void Executor::run_here(Running& running) {
  std::optional<LanesEnd> lanes;
  if (has_copies()) lanes.emplace(*resources_.device);
  const DeviceScope scope(*resources_.tier);
  for (std::size_t number = 0; number < program_.instructions.size(); ++number) {
    if (!takes_part(program_.instructions[number], running)) {
      pass_over(number, running);
      continue;
    }
    carry_out(number, running);
    expect_finite(program_.instructions[number], running.inputs.step, running.outputs);
  }
  if (lanes) lanes->dismiss();
}

void Executor::run_apart(const std::shared_ptr<Running>& running) {
  device::Device& device = *resources_.device;
  LanesEnd lanes(device);
  // The tensor library has a number of threads for each thread that uses it.
  device.run(
      Lane::Compute, [] { at::init_num_threads(); }, "threads");
  for (std::size_t number = 0; number < program_.instructions.size(); ++number) {
    issue(number, running);
    expect_finite(program_.instructions[number], running->inputs.step, running->outputs);
  }
  for (const Lane lane : {Lane::Compute, Lane::Message, Lane::Collective, Lane::CopyOut,
                          Lane::CopyIn, Lane::DiskWrite, Lane::DiskRead, Lane::HostCompute})
    device.wait(device.mark(lane));
  lanes.dismiss();
}

device::Mark Executor::put(Lane lane, Part work, std::size_t number,
                           const std::shared_ptr<Running>& running) {
  std::vector<device::Mark> after;
  if (lane != Lane::Compute) {
    const plan::Instruction& instruction = program_.instructions[number];
    for (const int earlier : instruction.after) after.push_back(running->marks[as_index(earlier)]);
    // A lane has an order of its own.
    if (plan::is_collective(instruction.operation) && running->begun.lane != lane)
      after.push_back(running->begun);
  }
  return resources_.device->run(
      lane,
      [this, lane, work, number, running] {
        if (lane != Lane::Compute) return (this->*work)(number, *running);
        const at::NoGradGuard no_gradients;
        const DeviceScope scope(*resources_.tier);
        (this->*work)(number, *running);
      },
      activities_[number], after);
}

void Executor::issue(std::size_t number, const std::shared_ptr<Running>& running) {
  const plan::Instruction& instruction = program_.instructions[number];
  device::Device& device = *resources_.device;
  if (!takes_part(instruction, *running)) {
    put(Lane::Compute, &Executor::pass_over, number, running);
    return;
  }
  if (instruction.operation == plan::Operation::Wait) {
    // Its seconds are those that Compute stands here.
    put(Lane::Compute, &Executor::begin, number, running);
    device.order(Lane::Compute, running->marks.at(as_index(instruction.completes)));
    put(Lane::Compute, &Executor::conclude, number, running);
    return;
  }
  // What is collective is begun in one order on all ranks, whichever lane begins it.
  if (blocks(instruction)) {
    device.order(Lane::Compute, running->begun);
  }
  if (instruction.operation == plan::Operation::Load) {
    running->staged[as_index(instruction.micro_batch)] = loaded(instruction, *running);
    put(Lane::Compute, &Executor::load, number, running);
    return;
  }
  if (instruction.operation == plan::Operation::Report) {
    device.wait(put(Lane::Compute, &Executor::prepare, number, running));
    return;
  }
  if (instruction.lane == Lane::Compute) {
    put(Lane::Compute, &Executor::carry_out, number, running);
    return;
  }
  put(Lane::Compute, &Executor::prepare, number, running);
  running->marks[number] = put(instruction.lane, &Executor::start_transfer, number, running);
  if (plan::is_collective(instruction.operation)) running->begun = running->marks[number];
}

void Executor::carry_out(std::size_t number, Running& running) {
  begin(number, running);
  execute(program_.instructions[number], number, running);
  start_transfer(number, running);
  if (blocks(program_.instructions[number])) await_transfer(number, running);
  end(number, running);
}

// All but what another lane does.
void Executor::prepare(std::size_t number, Running& running) {
  begin(number, running);
  conclude(number, running);
}

void Executor::load(std::size_t number, Running& running) {
  begin(number, running);
  execute(program_.instructions[number], number, running);
  fill_loaded(number, running);
  end(number, running);
}

// What has begun before Compute waited for another lane.
void Executor::conclude(std::size_t number, Running& running) {
  execute(program_.instructions[number], number, running);
  end(number, running);
}

void Executor::begin(std::size_t number, Running& running) {
  const bool updates = is_update(program_.instructions[number].operation);
  if (running.inputs.before) running.inputs.before(updates);
  resources_.tier->set_activity(activities_[number]);
  resources_.tier->reset_peak();
  running.start = std::chrono::steady_clock::now();
}

void Executor::end(std::size_t number, Running& running) {
  const plan::Instruction& instruction = program_.instructions[number];
  check_made(instruction, running);
  for (const int freed : instruction.frees) {
    if (program_.buffers[as_index(freed)].tier == Tier::Device) {
      running.buffers[as_index(freed)].reset();
    } else {
      give_back(freed, running);
    }
  }
  measure(running);
}

void Executor::measure(Running& running) const {
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - running.start;
  plan::Measurement measurement;
  measurement.seconds = taken.count();
  measurement.live_bytes = resources_.tier->live_bytes();
  measurement.peak_bytes = resources_.tier->peak_bytes();
  running.outputs.peak_bytes = std::max(running.outputs.peak_bytes, measurement.peak_bytes);
  running.outputs.measurements.push_back(measurement);
  for (const Tier tier : {Tier::Host, Tier::Disk}) {
    if (const device::TierMemory* const memory = memory_below(tier))
      running.outputs.live_bytes_below[tier].push_back(memory->live_bytes());
  }
}

void Executor::start_transfer(std::size_t number, Running& running) {
  Transfer& transfer = running.transfers[number];
  if (transfer.copy) return start_copy(number, running);
  if (!transfer.start) return;
  // What it follows has begun, and is to have ended.
  for (const int earlier : program_.instructions[number].after) {
    const Transfer& before = running.transfers[as_index(earlier)];
    if (before.transport != nullptr) before.transport->wait(before.ticket);
    if (before.copies && !memory_apart()) resources_.device->wait(running.marks[as_index(earlier)]);
  }
  transfer.ticket = transfer.start();
  transfer.start = nullptr;
}

void Executor::fill_loaded(std::size_t number, Running& running) {
  const plan::Instruction& instruction = program_.instructions[number];
  std::vector<at::Tensor>& staged = running.staged[as_index(instruction.micro_batch)];
  for (std::size_t k = 0; k < staged.size(); ++k) {
    copy_in(running.buffers[as_index(instruction.arguments.loaded[k].buffer)], staged[k]);
  }
  staged.clear();
}

// A tensor of other bytes than the Program says would make every prediction after it wrong.
void Executor::check_made(const plan::Instruction& instruction, const Running& running) const {
  for (const int id : instruction.writes) {
    const plan::Buffer& buffer = program_.buffers[as_index(id)];
    if (buffer.tier != Tier::Device) {
      expect_of(instruction, running.lowered.contains(id), "did not make " + buffer.name);
      continue;
    }
    const at::Tensor& tensor = running.buffers[as_index(id)];
    if (!tensor.defined() && buffer.bytes == 0) continue;
    if (!tensor.defined())
      throw InternalError(plan::describe(instruction) + " did not make " + buffer.name);
    const std::int64_t bytes = round_up(static_cast<std::int64_t>(tensor.storage().nbytes()),
                                        program_.tier(buffer.tier).granularity);
    if (bytes != buffer.bytes) {
      throw InternalError(fmt::format("{} made {} with {} bytes where the Program says {}",
                                      plan::describe(instruction), buffer.name, bytes,
                                      buffer.bytes));
    }
  }
}

}  // namespace garonne::exec
