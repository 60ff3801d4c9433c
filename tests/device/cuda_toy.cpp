#include "cuda_toy.hpp"

#include <exception>
#include <utility>

namespace garonne::device {
namespace {

// What programs of toys leave out: host work on a stream, times, facts.
void use_the_rest(CudaDevice& device) {
  device.memory();
  const Mark before = device.timed_mark(Lane::CopyOut);
  device.run(
      Lane::CopyOut, [] {}, "host work on a stream");
  const Mark after = device.timed_mark(Lane::CopyOut);
  device.wait(after);
  static_cast<void>(device.seconds(before, after));
  device.forget_times();
}

ToyResult run(const ToyProgram& program, FakeCudaRuntime& runtime, const CudaSettings& settings) {
  CudaDevice device(runtime, settings);
  TierMemory& device_memory = device.reserve(Tier::Device, std::int64_t{1} << 20);
  TierMemory& host_memory = device.reserve(Tier::Host, std::int64_t{1} << 20);
  use_the_rest(device);
  const auto put_kernel = [&](std::function<void()> kernel, const std::string& name,
                              std::span<const Mark> after) {
    for (const Mark mark : after) device.order(Lane::Compute, mark);
    runtime.launch(device.queue(Lane::Compute).native, std::move(kernel));
    return device.launched(Lane::Compute, name);
  };
  const auto find = [&](Span block) {
    return block.tier == Tier::Device ? runtime.device_side(block.data) : block.data;
  };
  ToyResult result = run_toy(program, {.device = device,
                                       .device_memory = device_memory,
                                       .host_memory = host_memory,
                                       .find = find,
                                       .put_kernel = put_kernel});
  // The end comes with work under way.
  device.copy(Lane::CopyOut, host_memory.allocate(400, "last"), device_memory.allocate(400, "last"),
              "nobody waits for it");
  device.close();
  return result;
}

}  // namespace

std::string problem_of_cuda_toy(const ToyProgram& program, const ToyResult& reference,
                                FakeCudaRuntime& runtime, CudaSettings settings) {
  settings.spoil_blocks = true;
  settings.longest_wait_seconds = 20;
  std::string thrown;
  bool other_bits = false;
  try {
    other_bits = run(program, runtime, settings) != reference;
  } catch (const std::exception& error) {
    thrown = error.what();
  }
  // What is not forgiven is the cause of the rest.
  const auto violations = runtime.violations();
  if (!violations.empty()) return violations.front();
  if (!thrown.empty()) return thrown;
  if (runtime.live() != FakeCudaCounts()) return "streams, events or memory are left";
  return other_bits ? "other bits" : "";
}

}  // namespace garonne::device
