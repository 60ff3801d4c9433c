// What the executor moves between tiers of memory.
#include <ATen/Functions.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "exec/executor.hpp"
#include "exec/executor_running.hpp"

namespace garonne::exec {

device::TierMemory* Executor::memory_below(Tier tier) const {
  if (tier == Tier::Host) return machine_.host;
  return machine_.disk == nullptr ? nullptr : &machine_.disk->memory();
}

bool Executor::has_copies() const {
  return std::any_of(program_.instructions.begin(), program_.instructions.end(),
                     [](const plan::Instruction& one) { return is_copy(one.operation); });
}

// What is made is there when it is issued, its contents when it was waited for.
void Executor::copy(const plan::Instruction& instruction, std::size_t number, Running& running) {
  const int from = instruction.arguments.inputs[0];
  const int to = instruction.arguments.output;
  const Tier source_tier = program_.buffers[index(from)].tier;
  const Tier target_tier = program_.buffers[index(to)].tier;
  Lowered what;
  const std::byte* source = nullptr;
  if (source_tier == Tier::Device) {
    const at::Tensor& tensor = running.buffers[index(from)];
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
  if (target_tier == Tier::Device) {
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
    expect_of(instruction, round_up(what.bytes, granularity) == program_.buffers[index(to)].bytes,
              "copies other bytes than the Program says");
    running.lowered[to] = what;
    target = what.block.data;
  }
  Transfer& transfer = running.transfers[number];
  transfer.copies = true;
  transfer.seconds = std::make_shared<double>(0);
  transfer.copy = [disk = machine_.disk, source_tier, target_tier, source, source_block, target,
                   target_block = what.block, bytes = what.bytes, seconds = transfer.seconds] {
    const auto start = std::chrono::steady_clock::now();
    if (target_tier == Tier::Disk) {
      disk->write(target_block, source, bytes);
    } else if (source_tier == Tier::Disk) {
      disk->read(source_block, target, bytes);
    } else {
      std::memcpy(target, source, static_cast<std::size_t>(bytes));
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
    const Transfer& before = running.transfers[index(earlier)];
    if (before.transport != nullptr) before.transport->wait(before.ticket);
    after.push_back(running.marks[index(earlier)]);
  }
  running.marks[number] =
      machine_.device->run(instruction.lane, std::move(copy), activities_[number], after);
}

void Executor::give_back(int buffer, Running& running) {
  const auto found = running.lowered.find(buffer);
  expect(found != running.lowered.end(), "gives back what is not there");
  found->second.memory->release(found->second.block);
  running.lowered.erase(found);
}

}  // namespace garonne::exec
