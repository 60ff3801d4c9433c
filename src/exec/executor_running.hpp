// What an execution holds while it runs. For the executor's own use.
#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/index.hpp"
#include "exec/executor.hpp"
#include "exec/lowered.hpp"

namespace garonne::exec {

// expect() of an instruction. It is called several times an instruction, so the text is made where
// it is thrown only.
inline void expect_of(const plan::Instruction& instruction, bool condition, std::string_view reason,
                      std::source_location where = std::source_location::current()) {
  if (!condition)
    throw InternalError(plan::describe(instruction) + " " + std::string(reason), where);
}

// Those of a value of a micro-batch, of which there are as many as the model says.
template <typename Number>
const std::vector<Number>& loaded_values(const std::map<std::string, std::vector<Number>>& batch,
                                         const plan::ValueSpec& spec) {
  const auto found = batch.find(spec.name);
  expect(found != batch.end(), "a micro-batch lacks its " + spec.name);
  expect(static_cast<std::int64_t>(found->second.size()) == spec.elements(),
         "a micro-batch has another number of elements in its " + spec.name);
  return found->second;
}

// Whether Compute meets other ranks, and goes on when they have met.
inline bool blocks(const plan::Instruction& instruction) {
  return instruction.channel && instruction.lane == Lane::Compute;
}

// Of the report of a training step: what is not finite ends the run.
void expect_finite(const plan::Instruction& instruction, std::int64_t step,
                   const StepOutputs& outputs);

// Nothing on the lanes outlives a step that ends with an exception.
class LanesEnd {
 public:
  explicit LanesEnd(device::Device& device) : device_(device) {}
  ~LanesEnd() {
    if (!dismissed_) device_.end();
  }
  LanesEnd(const LanesEnd&) = delete;
  LanesEnd& operator=(const LanesEnd&) = delete;
  void dismiss() { dismissed_ = true; }

 private:
  device::Device& device_;
  bool dismissed_ = false;
};

// What an instruction has a transport do. `start` holds addresses: tensors would live longer than
// the Program says.
struct Transfer {
  dist::Transport* transport = nullptr;
  std::function<dist::Ticket()> start;
  dist::Ticket ticket;
  bool joined = false;  // Compute's own
  // In place of a transport: a copy between tiers, of addresses, too. Between a GPU and its host
  // the device does it itself, between these.
  std::function<void()> copy;
  device::Span to;
  device::Span from;
  bool copies = false;
  device::Mark began;               // where the device does it
  std::shared_ptr<double> seconds;  // that the copy took on its lane
};

// Between two steps of a rotated Program: what the first has left to the second.
struct Executor::CarriedOver {
  CarriedOver() = default;
  ~CarriedOver() {
    for (const auto& [id, what] : lowered) what.memory->release(what.block);
  }
  CarriedOver(const CarriedOver&) = delete;
  CarriedOver& operator=(const CarriedOver&) = delete;

  UpdateNumbers numbers;
  std::int64_t steps_in_a_row = 1;  // since the last flush
  std::map<int, Lowered> lowered;   // by buffer
};

// Everything that lives from the start of a step to its end. It is Compute's while the step runs,
// but for what another lane does for an instruction, which is that lane's until it is joined.
struct Executor::Running {
  explicit Running(const StepInputs& given, const plan::Program& program)
      : inputs(given),
        buffers(program.buffers.size()),
        samples(as_index(program.micro_batches)),
        on_host(as_index(program.micro_batches)),
        staged(as_index(program.micro_batches)),
        transfers(program.instructions.size()),
        marks(program.instructions.size()) {
    outputs.measurements.reserve(program.instructions.size());
  }
  // Of a step that ends with an exception, once its lanes have ended.
  ~Running() {
    for (const auto& [id, what] : lowered) {
      if (!what.lasts) what.memory->release(what.block);
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  const StepInputs inputs;
  bool this_step = true;          // its own instructions are carried out
  UpdateNumbers of_previous{};    // of a rotated step; step 0: none is before it
  std::int64_t steps_before = 0;  // in a row, which left something to the next
  std::vector<at::Tensor> buffers;
  std::vector<std::span<const std::int64_t>> samples;  // by micro-batch
  std::vector<std::vector<std::int64_t>> on_host;      // those of the host's own memory
  std::vector<Staging::Kept> pinned;                   // those that a GPU reaches
  std::vector<std::vector<at::Tensor>> staged;         // by micro-batch: loaded, on the host
  std::vector<Transfer> transfers;                     // by instruction
  std::map<int, Lowered> lowered;                      // by buffer below the device
  std::vector<device::Mark> marks;                     // by instruction on another lane; the host's
  device::Mark begun{Lane::Collective, 0};  // of the last collective on another lane; the host's
  std::chrono::steady_clock::time_point start;  // of the instruction
  std::vector<device::Mark> moments;            // on a GPU: before each instruction, and at the end
  bool lacks_data = false;                      // of a micro-batch: the loss is made NaN
  StepOutputs outputs;
};

}  // namespace garonne::exec
