#include "toy_program.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace garonne::device {
namespace {

// Not inlined: both sides have the same instructions, hence the same bits.
[[gnu::noinline]] void kernel(float* out, const float* first, const float* second,
                              const float* factors) {
  for (int i = 0; i < toy_elements; ++i) {
    out[i] = factors[0] * first[i] + factors[1] * second[(i + 7) % toy_elements] + factors[2];
  }
}

std::vector<std::uint32_t> bits_of(const float* values) {
  std::vector<std::uint32_t> bits(toy_elements);
  for (int i = 0; i < toy_elements; ++i) {
    bits[static_cast<std::size_t>(i)] = std::bit_cast<std::uint32_t>(values[i]);
  }
  return bits;
}

// The device's side of buffers and steps.
class ToyRun {
 public:
  explicit ToyRun(const ToyTarget& target) : target_(target) {}

  void put(const ToyProgram& program, int number) {
    const ToyStep& step = program.steps[static_cast<std::size_t>(number)];
    const auto memory = [&]() -> TierMemory& {
      return program.tiers[static_cast<std::size_t>(step.buffer)] == Tier::Host
                 ? target_.host_memory
                 : target_.device_memory;
    };
    std::vector<Mark> after;
    for (const int earlier : step.after) after.push_back(marks_.at(earlier));
    const std::string name = "step " + std::to_string(number);
    switch (step.operation) {
      case ToyOperation::Make:
        blocks_[step.buffer] = memory().allocate(toy_elements * sizeof(float), name);
        return;
      case ToyOperation::Kernel:
        marks_[number] = step.lane == Lane::Compute
                             ? target_.put_kernel(kernel_of(step), name, after)
                             : target_.device.run(step.lane, kernel_of(step), name, after);
        return;
      case ToyOperation::Copy:
        marks_[number] = target_.device.copy(step.lane, blocks_.at(step.buffer),
                                             blocks_.at(step.reads[0]), name, after);
        return;
      case ToyOperation::Wait:
        target_.device.order(Lane::Compute, marks_.at(step.waits_for));
        return;
      case ToyOperation::Free:
        memory().release(blocks_.at(step.buffer));
        blocks_.erase(step.buffer);
        return;
      case ToyOperation::Nothing:
        return;
    }
  }

  // What nobody waited for is asked for last, and the lanes that follow others first.
  ToyResult finish() {
    for (const Lane lane : {Lane::Compute, Lane::HostCompute, Lane::CopyIn, Lane::CopyOut}) {
      target_.device.wait(target_.device.mark(lane));
    }
    ToyResult result;
    for (const auto& [buffer, block] : blocks_) result[buffer] = bits_of(values(block));
    return result;
  }

 private:
  float* values(Span block) const { return reinterpret_cast<float*>(target_.find(block)); }

  std::function<void()> kernel_of(const ToyStep& step) {
    static const std::vector<float> ones(toy_elements, 1.0F);
    const float* first = step.reads.empty() ? ones.data() : values(blocks_.at(step.reads[0]));
    const float* second = step.reads.empty() ? ones.data() : values(blocks_.at(step.reads[1]));
    return [out = values(blocks_.at(step.buffer)), first, second,
            factors = std::vector<float>(step.factors, step.factors + 3)] {
      kernel(out, first, second, factors.data());
    };
  }

  const ToyTarget& target_;
  std::map<int, Span> blocks_;
  std::map<int, Mark> marks_;
};

}  // namespace

ToyResult toy_reference(const ToyProgram& program) {
  const std::vector<float> ones(toy_elements, 1.0F);
  std::map<int, std::vector<float>> buffers;
  for (const ToyStep& step : program.steps) {
    switch (step.operation) {
      case ToyOperation::Make:
        buffers[step.buffer].assign(toy_elements, std::nanf(""));
        break;
      case ToyOperation::Kernel: {
        const bool reads = !step.reads.empty();
        const std::vector<float> first = reads ? buffers.at(step.reads[0]) : ones;
        const std::vector<float> second = reads ? buffers.at(step.reads[1]) : ones;
        kernel(buffers.at(step.buffer).data(), first.data(), second.data(), step.factors);
        break;
      }
      case ToyOperation::Copy:
        buffers.at(step.buffer) = buffers.at(step.reads[0]);
        break;
      case ToyOperation::Free:
        buffers.erase(step.buffer);
        break;
      case ToyOperation::Wait:
      case ToyOperation::Nothing:
        break;
    }
  }
  ToyResult result;
  for (const auto& [buffer, contents] : buffers) result[buffer] = bits_of(contents.data());
  return result;
}

ToyResult run_toy(const ToyProgram& program, const ToyTarget& target) {
  ToyRun run(target);
  for (int number = 0; number < static_cast<int>(program.steps.size()); ++number) {
    run.put(program, number);
  }
  if (target.all_are_put) target.all_are_put();
  return run.finish();
}

ToyResult run_toy(const ToyProgram& program, const EmulatedSettings& settings) {
  EmulatedDevice* emulated = nullptr;
  TierMemory host(
      {.tier = Tier::Host, .limit_bytes = std::int64_t{1} << 20, .spoil = [&](Span block) {
         emulated->run(
             Lane::Compute,
             [block] { std::memset(block.data, 0xFF, static_cast<std::size_t>(block.bytes)); },
             "a host block without contents");
       }});
  EmulatedDevice device(settings);  // last: its lanes use the others
  emulated = &device;
  return run_toy(program, {.device = device,
                           .device_memory = device.device_memory(),
                           .host_memory = host,
                           .find = [](Span block) { return block.data; },
                           .put_kernel =
                               [&](std::function<void()> kernel, const std::string& name,
                                   std::span<const Mark> after) {
                                 return device.run(Lane::Compute, std::move(kernel), name, after);
                               }});
}

}  // namespace garonne::device
