// What the executor moves between tiers of memory.
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/bytes.hpp"
#include "base/contains.hpp"
#include "base/error.hpp"
#include "base/index.hpp"
#include "exec/executor.hpp"
#include "exec/executor_running.hpp"
#include "kernels/scalar.hpp"
#include "nn/tensor_options.hpp"

namespace garonne::exec {

device::TierMemory* Executor::memory_below(Tier tier) const {
  if (tier == Tier::Host) return resources_.host;
  return resources_.disk == nullptr ? nullptr : &resources_.disk->memory();
}

bool Executor::has_copies() const {
  return std::any_of(program_.instructions.begin(), program_.instructions.end(),
                     [](const plan::Instruction& one) { return is_copy(one.operation); });
}

// What is made is there when it is issued, its contents when it was waited for.
void Executor::copy(const plan::Instruction& instruction, std::size_t number, Running& running) {
  const int from = instruction.arguments.inputs[0];
  const int to = instruction.arguments.output;
  const Tier source_tier = program_.buffers[as_index(from)].tier;
  const Tier target_tier = program_.buffers[as_index(to)].tier;
  Lowered what;
  const std::byte* source = nullptr;
  if (source_tier == Tier::Device) {
    const at::Tensor& tensor = running.buffers[as_index(from)];
    what.bytes = static_cast<std::int64_t>(tensor.storage().nbytes());
    what.type = tensor.scalar_type();
    what.sizes = tensor.sizes().vec();
    what.strides = tensor.strides().vec();
    what.offset = tensor.storage_offset();
    source = static_cast<const std::byte*>(tensor.storage().data());
  } else {
    const auto found = running.lowered.find(from);
    expect_of(instruction, found != running.lowered.end(), "copies what is not there");
    what = found->second;
    source = what.block.data;
  }
  const device::Span source_block = what.block;
  std::byte* target = nullptr;
  if (target_tier == Tier::Device && contains(instruction.reads, to)) {
    // Over what is there.
    const at::Tensor& tensor = running.buffers[as_index(to)];
    expect_of(instruction, static_cast<std::int64_t>(tensor.storage().nbytes()) == what.bytes,
              "copies other bytes than there are");
    target = static_cast<std::byte*>(tensor.storage().mutable_data());
  } else if (target_tier == Tier::Device) {
    const std::int64_t elements =
        what.bytes / static_cast<std::int64_t>(c10::elementSize(what.type));
    const at::Tensor tensor =
        at::empty({elements}, options(what.type)).as_strided(what.sizes, what.strides, what.offset);
    make(instruction, to, tensor, running);
    target = static_cast<std::byte*>(tensor.storage().mutable_data());
  } else {
    // Over what is there, or new.
    const auto there = running.lowered.find(to);
    what.memory = memory_below(target_tier);
    what.lasts = there != running.lowered.end() && there->second.lasts;
    what.block = there != running.lowered.end()
                     ? there->second.block
                     : what.memory->allocate(what.bytes, activities_[number]);
    const std::int64_t granularity = program_.tier(target_tier).granularity;
    expect_of(instruction,
              round_up(what.bytes, granularity) == program_.buffers[as_index(to)].bytes,
              "copies other bytes than the Program says");
    running.lowered[to] = what;
    target = what.block.data;
  }
  Transfer& transfer = running.transfers[number];
  transfer.copies = true;
  transfer.to = {target_tier, target, what.bytes};
  transfer.from = {source_tier, const_cast<std::byte*>(source), what.bytes};
  transfer.seconds = std::make_shared<double>(0);
  const bool of_gpu = resources_.device->kind() == DeviceKind::Cuda &&
                      (source_tier == Tier::Device || target_tier == Tier::Device);
  const bool of_disk = source_tier == Tier::Disk || target_tier == Tier::Disk;
  device::ThreadCopies* const pieces =
      of_gpu && of_disk ? &resources_.device->thread_copies(instruction.lane) : nullptr;
  transfer.copy = [disk = resources_.disk, device = resources_.device, lane = instruction.lane,
                   to = transfer.to, from = transfer.from, source_block, target_block = what.block,
                   seconds = transfer.seconds, pieces] {
    const auto start = std::chrono::steady_clock::now();
    if (pieces != nullptr && to.tier == Tier::Disk) {
      disk->write(target_block, from, *pieces);
    } else if (pieces != nullptr) {
      disk->read(source_block, to, *pieces);
    } else if (to.tier == Tier::Disk) {
      disk->write(target_block, from.data, from.bytes);
    } else if (from.tier == Tier::Disk) {
      disk->read(source_block, to.data, to.bytes);
    } else {
      device->copy_here(lane, to, from);
    }
    *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
}

// What it makes is there when it is issued. Addresses: a lane keeps nothing alive.
void Executor::update_on_host(const plan::Instruction& instruction, std::size_t number,
                              Running& running) {
  for (const plan::StandIn& one : instruction.arguments.stand_ins) {
    if (running.lowered.contains(one.on_host)) continue;
    const at::Tensor& like = running.buffers[as_index(one.buffer)];
    expect_of(instruction, like.defined(), "makes a copy of what is not on the device");
    Lowered made;
    made.memory = memory_below(Tier::Host);
    made.bytes = static_cast<std::int64_t>(like.storage().nbytes());
    made.type = like.scalar_type();
    made.sizes = like.sizes().vec();
    made.strides = like.strides().vec();
    made.offset = like.storage_offset();
    made.block = made.memory->allocate(made.bytes, activities_[number]);
    running.lowered[one.on_host] = std::move(made);
  }
  const auto on_host = [&](int id) -> const Lowered& {
    const auto found = running.lowered.find(id);
    expect_of(instruction, found != running.lowered.end(), "uses what is not on the host");
    return found->second;
  };
  const std::vector<optim::ParameterUpdate> updates =
      updates_of(instruction, [&](const plan::Range& range) {
        const Lowered& there = on_host(range.buffer);
        const auto size = static_cast<std::int64_t>(c10::elementSize(there.type));
        expect_of(instruction, (range.offset + range.elements) * size <= there.bytes,
                  "updates more than there is on the host");
        return at::from_blob(there.block.data + range.offset * size, {range.elements},
                             nn::host_tensor_options(there.type));
      });
  const auto* norm =
      reinterpret_cast<const double*>(on_host(instruction.arguments.inputs[0]).block.data);
  const UpdateNumbers numbers =
      instruction.of_previous_step
          ? running.of_previous
          : UpdateNumbers{running.inputs.step, running.inputs.learning_rate};
  Transfer& transfer = running.transfers[number];
  transfer.copies = true;
  transfer.seconds = std::make_shared<double>(0);
  transfer.copy = [updates, norm, optimizer = resources_.optimizer, step = numbers.step,
                   rate = numbers.learning_rate, seconds = transfer.seconds,
                   queue = resources_.device->queue(instruction.lane)] {
    const auto start = std::chrono::steady_clock::now();
    const at::NoGradGuard no_gradients;
    const kernels::Scalar scale{.place = norm + 1};
    // Parameters are here as a whole.
    for (optim::ParameterUpdate update : updates) {
      for (const TensorSums& sums : optimizer->sums()) {
        update.sums.push_back(at::zeros({sums.count({update.part.rows, update.part.columns})},
                                        nn::host_tensor_options(at::kDouble)));
        optimizer->add_sums(queue, update, update.sums.size() - 1, step, rate, scale);
      }
      optimizer->update(queue, update, step, rate, scale);
    }
    *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
}

void Executor::take_copy_seconds(Running& running) const {
  for (std::size_t number = 0; number < running.transfers.size(); ++number) {
    if (const auto& seconds = running.transfers[number].seconds)
      running.outputs.copy_seconds[program_.instructions[number].lane] += *seconds;
  }
}

void Executor::start_copy(std::size_t number, Running& running) {
  std::function<void()> copy = std::move(running.transfers[number].copy);
  running.transfers[number].copy = nullptr;
  // There it is the lane that comes here.
  if (memory_apart()) return copy();
  const plan::Instruction& instruction = program_.instructions[number];
  std::vector<device::Mark> after;
  for (const int earlier : instruction.after) {
    const Transfer& before = running.transfers[as_index(earlier)];
    if (before.transport != nullptr) before.transport->wait(before.ticket);
    after.push_back(running.marks[as_index(earlier)]);
  }
  device::Device& device = *resources_.device;
  const bool by_device = instruction.lane == Lane::CopyOut || instruction.lane == Lane::CopyIn;
  if (device.kind() != DeviceKind::Cuda || !by_device) {
    running.marks[number] =
        device.run(instruction.lane, std::move(copy), activities_[number], after);
    return;
  }
  Transfer& transfer = running.transfers[number];
  transfer.began = device.timed_mark(instruction.lane);
  device.copy(instruction.lane, transfer.to, transfer.from, activities_[number], after);
  running.marks[number] = device.timed_mark(instruction.lane);
}

void Executor::give_back(int buffer, Running& running) {
  const auto found = running.lowered.find(buffer);
  expect(found != running.lowered.end(), "gives back what is not there");
  found->second.memory->release(found->second.block);
  running.lowered.erase(found);
}

}  // namespace garonne::exec
