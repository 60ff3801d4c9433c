#include "cuda_toy.hpp"

#include <exception>
#include <stdexcept>
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

// Tiers and kernels of a device.
struct Parts {
  FakeCudaRuntime& runtime;
  CudaDevice& device;
  TierMemory& device_memory = device.reserve(Tier::Device, std::int64_t{1} << 20);
  TierMemory& host_memory = device.reserve(Tier::Host, std::int64_t{1} << 20);

  ToyTarget target() {
    const auto put_kernel = [this](std::function<void()> kernel, const std::string& name,
                                   std::span<const Mark> after) {
      for (const Mark mark : after) device.order(Lane::Compute, mark);
      runtime.launch(device.queue(Lane::Compute).native, std::move(kernel));
      return device.launched(Lane::Compute, name);
    };
    const auto find = [this](Span block) {
      return block.tier == Tier::Device ? runtime.device_side(block.data) : block.data;
    };
    return {.device = device,
            .device_memory = device_memory,
            .host_memory = host_memory,
            .find = find,
            .put_kernel = put_kernel};
  }
};

ToyResult run(const ToyProgram& program, FakeCudaRuntime& runtime, const CudaSettings& settings) {
  CudaDevice device(runtime, settings);
  Parts parts{runtime, device};
  TierMemory& device_memory = parts.device_memory;
  TierMemory& host_memory = parts.host_memory;
  use_the_rest(device);
  ToyResult result = run_toy(program, parts.target());
  // The end comes with work under way.
  device.copy(Lane::CopyOut, host_memory.allocate(400, "last"), device_memory.allocate(400, "last"),
              "nobody waits for it");
  device.close();
  return result;
}

ToyResult record(const ToyProgram& program, FakeCudaRuntime& runtime, int launches) {
  CudaDevice device(runtime, {.spoil_blocks = true, .longest_wait_seconds = 20});
  Parts parts{runtime, device};
  ToyTarget target = parts.target();
  const int before = runtime.kernels_run();
  target.all_are_put = [&] {
    const int graph = device.end_capture("a toy");
    if (runtime.kernels_run() > before) throw std::runtime_error("kernels ran when recorded");
    for (int launch = 0; launch < launches; ++launch)
      device.wait(device.launch(graph, "a toy that was recorded"));
  };
  device.begin_capture("a toy");
  ToyResult result = run_toy(program, target);
  device.close();
  return result;
}

std::string problem_of(const std::function<ToyResult()>& run, const ToyResult& reference,
                       const FakeCudaRuntime& runtime) {
  std::string thrown;
  bool other_bits = false;
  try {
    other_bits = run() != reference;
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

}  // namespace

std::string problem_of_cuda_toy(const ToyProgram& program, const ToyResult& reference,
                                FakeCudaRuntime& runtime, CudaSettings settings) {
  settings.spoil_blocks = true;
  settings.longest_wait_seconds = 20;
  return problem_of([&] { return run(program, runtime, settings); }, reference, runtime);
}

ToyProgram on_streams(ToyProgram program) {
  for (ToyStep& step : program.steps) {
    if (step.operation == ToyOperation::Kernel) step.lane = Lane::Compute;
  }
  return program;
}

std::string problem_of_cuda_graph(const ToyProgram& program, const ToyResult& reference,
                                  FakeCudaRuntime& runtime, int launches) {
  return problem_of([&] { return record(program, runtime, launches); }, reference, runtime);
}

}  // namespace garonne::device
