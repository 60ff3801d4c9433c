// How a step is put on a GPU: the host goes through the Program once, puts kernels and copies on
// the device's streams as it comes to them, and waits for the report only. Blocks of memory are
// handed out and taken back as it goes: what is put on Compute later runs later
// (device/device.hpp).
#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "base/index.hpp"
#include "base/seconds.hpp"
#include "device/lane_error.hpp"
#include "device/profiler_range.hpp"
#include "exec/executor.hpp"
#include "exec/executor_running.hpp"
#include "exec/host_access.hpp"
#include "nn/element_type.hpp"

namespace garonne::exec {
namespace {

using Clock = std::chrono::steady_clock;

std::string name_of(const StepInputs& inputs) {
  return inputs.training ? "step " + std::to_string(inputs.step) : "a pass without training";
}

}  // namespace

void Executor::run_on_gpu(Running& running) {
  expect(resources_.staging != nullptr, "a step on a GPU without pinned memory");
  device::Device& device = *resources_.device;
  LanesEnd lanes(device);
  const DeviceScope scope(*resources_.tier);
  const device::ProfilerRange range(name_of(running.inputs));
  const auto start = Clock::now();
  double issue_seconds = 0;
  fill_step_numbers(running);
  for (std::size_t number = 0; number < program_.instructions.size(); ++number) {
    if (!takes_part(program_.instructions[number], running)) {
      running.moments.push_back(device.timed_mark(Lane::Compute));
      pass_over(number, running);
      continue;
    }
    const auto before = Clock::now();
    issue_to_gpu(number, running);
    // Who reads and who waits for what was computed puts nothing.
    const plan::Operation operation = program_.instructions[number].operation;
    if (operation != plan::Operation::Load && operation != plan::Operation::Report)
      issue_seconds += seconds_since(before);
    expect_finite(program_.instructions[number], running.inputs.step, running.outputs);
  }
  running.moments.push_back(device.timed_mark(Lane::Compute));
  // So that samples and pinned memory are nobody's any more, and an error is this step's.
  device.wait(running.moments.back());
  take_seconds(running);
  lanes.dismiss();
  const double seconds = seconds_since(start) - running.outputs.data_seconds;
  plain_steps_.seconds =
      plain_steps_.number == 0 ? seconds : std::min(plain_steps_.seconds, seconds);
  plain_steps_.issue_seconds = issue_seconds;
  plain_steps_.measurements = running.outputs.measurements;
  ++plain_steps_.number;
}

void Executor::issue_to_gpu(std::size_t number, Running& running) {
  const plan::Instruction& instruction = program_.instructions[number];
  device::Device& device = *resources_.device;
  const device::ProfilerRange range(activities_[number]);
  begin(number, running);
  running.moments.push_back(device.timed_mark(Lane::Compute));
  if (instruction.operation == plan::Operation::Load) {
    stage_loaded(number, running);
  } else {
    device::run_named(Lane::Compute, activities_[number],
                      [&] { execute(instruction, number, running); });
  }
  if (running.transfers[number].copy) {
    start_copy(number, running);
  } else if (const Transfer& transfer = running.transfers[number]; transfer.start) {
    // It forks from Compute and joins it by itself (dist/transport.hpp).
    expect_of(instruction, transfer.transport->on_device(),
              "hands memory of a GPU to a transport of the host");
    start_transfer(number, running);
    if (blocks(instruction)) await_transfer(number, running);
  }
  device.launched(Lane::Compute, activities_[number]);
  end(number, running);
}

void Executor::stage_loaded(std::size_t number, Running& running) {
  const plan::Instruction& instruction = program_.instructions[number];
  const std::string& activity = activities_[number];
  const HostBatch batch = load_batch(instruction.micro_batch, running);
  for (const plan::LoadedValue& value : instruction.arguments.loaded) {
    const plan::ValueSpec& spec = model_.graph.values[as_index(value.value)];
    const at::Tensor tensor = at::empty(spec.shape, options(nn::scalar_type_of(spec.type)));
    if (spec.type == NumberType::Int64) {
      copy_in(tensor, loaded_values(batch.values, spec), *resources_.staging, activity);
    } else {
      copy_in(tensor, loaded_values(batch.fields, spec), *resources_.staging, activity);
    }
    make(instruction, value.buffer, tensor, running);
  }
  running.pinned.push_back(resources_.staging->keep(batch.samples, activity));
  running.samples[as_index(instruction.micro_batch)] = running.pinned.back().numbers();
}

// Seconds of the device, from where Compute came to an instruction to where it came to the next.
void Executor::take_seconds(Running& running) const {
  std::vector<plan::Measurement>& measurements = running.outputs.measurements;
  for (std::size_t number = 0; number < measurements.size(); ++number) {
    measurements[number].seconds =
        resources_.device->seconds(running.moments[number], running.moments[number + 1]);
    if (const Transfer& transfer = running.transfers[number]; transfer.began.number > 0)
      *transfer.seconds = resources_.device->seconds(transfer.began, running.marks[number]);
  }
  resources_.device->forget_times();
}

}  // namespace garonne::exec
