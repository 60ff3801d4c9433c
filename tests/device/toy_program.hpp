// Programs of a toy: kernels on Compute and on the host and copies between the two, over a few
// buffers, with the waits and `after` lists that they need and no others. A device carries one out;
// a reference that knows neither devices nor lanes says what has to come out.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "device/emulated_device.hpp"

namespace garonne::device {

enum class ToyOperation {
  Make,     // `buffer`, without contents
  Kernel,   // buffer[i] = factors[0] · reads[0][i] + factors[1] · reads[1][i + 7] + factors[2]
  Copy,     // buffer = reads[0]
  Wait,     // later work on Compute follows the step `waits_for`
  Free,     // `buffer`
  Nothing,  // what a fault leaves of a step
};

struct ToyStep {
  ToyOperation operation = ToyOperation::Nothing;
  Lane lane = Lane::Compute;
  int buffer = -1;
  std::vector<int> reads = {};
  float factors[3] = {};
  std::vector<int> after = {};  // numbers of earlier steps on lanes other than Compute
  int waits_for = -1;           // likewise
};

struct ToyProgram {
  std::vector<Tier> tiers;  // by buffer
  std::vector<ToyStep> steps;
};

inline constexpr int toy_elements = 200;

// About `steps` steps, all of them legal.
ToyProgram make_toy_program(std::uint64_t seed, int steps);

// Bits of the buffers that are left at the end, by number.
using ToyResult = std::map<int, std::vector<std::uint32_t>>;

// One step after the other.
ToyResult toy_reference(const ToyProgram& program);

// A device that carries programs out.
struct ToyTarget {
  Device& device;
  TierMemory& device_memory;
  TierMemory& host_memory;
  // Where the bytes of a block are found, by kernels and by who looks at the end.
  std::function<std::byte*(Span)> find;
  // Puts a kernel on Compute, after the marks.
  std::function<Mark(std::function<void()>, const std::string&, std::span<const Mark>)> put_kernel;
  // Called when all steps are put. May be empty.
  std::function<void()> all_are_put = nullptr;
};

// Steps are put on the lanes in the order of the program.
ToyResult run_toy(const ToyProgram& program, const ToyTarget& target);
// On an emulated device.
ToyResult run_toy(const ToyProgram& program, const EmulatedSettings& settings);

}  // namespace garonne::device
