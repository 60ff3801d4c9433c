#include "toy_program.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <string>

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
  explicit ToyRun(const EmulatedSettings& settings)
      : host_({.tier = Tier::Host,
               .limit_bytes = std::int64_t{1} << 20,
               .spoil =
                   [this](Span block) {
                     device_.run(
                         Lane::Compute,
                         [block] {
                           std::memset(block.data, 0xFF, static_cast<std::size_t>(block.bytes));
                         },
                         "a host block without contents");
                   }}),
        device_(settings) {}

  void put(const ToyProgram& program, int number) {
    const ToyStep& step = program.steps[static_cast<std::size_t>(number)];
    const auto memory = [&]() -> TierMemory& {
      return program.tiers[static_cast<std::size_t>(step.buffer)] == Tier::Host
                 ? host_
                 : device_.device_memory();
    };
    std::vector<Mark> after;
    for (const int earlier : step.after) after.push_back(marks_.at(earlier));
    const std::string name = "step " + std::to_string(number);
    switch (step.operation) {
      case ToyOperation::Make:
        blocks_[step.buffer] = memory().allocate(toy_elements * sizeof(float), name);
        return;
      case ToyOperation::Kernel:
        marks_[number] = device_.run(step.lane, kernel_of(step), name, after);
        return;
      case ToyOperation::Copy:
        marks_[number] = device_.copy(step.lane, blocks_.at(step.buffer), blocks_.at(step.reads[0]),
                                      name, after);
        return;
      case ToyOperation::Wait:
        device_.order(Lane::Compute, marks_.at(step.waits_for));
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
      device_.wait(device_.mark(lane));
    }
    ToyResult result;
    for (const auto& [buffer, block] : blocks_) result[buffer] = bits_of(values(block));
    return result;
  }

 private:
  static float* values(Span block) { return reinterpret_cast<float*>(block.data); }

  std::function<void()> kernel_of(const ToyStep& step) {
    static const std::vector<float> ones(toy_elements, 1.0F);
    const float* first = step.reads.empty() ? ones.data() : values(blocks_.at(step.reads[0]));
    const float* second = step.reads.empty() ? ones.data() : values(blocks_.at(step.reads[1]));
    return [out = values(blocks_.at(step.buffer)), first, second,
            factors = std::vector<float>(step.factors, step.factors + 3)] {
      kernel(out, first, second, factors.data());
    };
  }

  TierMemory host_;
  std::map<int, Span> blocks_;
  std::map<int, Mark> marks_;
  EmulatedDevice device_;  // last: its lanes use the others
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

ToyResult run_toy(const ToyProgram& program, const EmulatedSettings& settings) {
  ToyRun run(settings);
  for (int number = 0; number < static_cast<int>(program.steps.size()); ++number) {
    run.put(program, number);
  }
  return run.finish();
}

}  // namespace garonne::device
