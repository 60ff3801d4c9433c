#include "device/emulated_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>

#include "base/error.hpp"

namespace garonne::device {
namespace {

// A slow copy reads and writes all the time that it takes, not at one moment.
constexpr std::int64_t pieces_of_copy = 8;

std::function<Lateness(Mark)> lateness_in(const EmulatedSettings& settings) {
  if (!settings.delay_seed) return nullptr;
  return [seed = *settings.delay_seed, most = settings.longest_delay_seconds,
          hold = settings.longest_hold_seconds](Mark mark) {
    Lateness late = lateness_of(seed, mark, most);
    late.hold_seconds = hold;
    return late;
  };
}

}  // namespace

EmulatedDevice::EmulatedDevice(const EmulatedSettings& settings)
    : ThreadedDevice(
          {.threads = settings.threads,
           .longest_wait_seconds = settings.longest_wait_seconds,
           .compute_thread = settings.compute_thread,
           .lateness = lateness_in(settings),
           .copy = [this](Lane lane, Span to, Span from) { copy_slowly(lane, to, from); }}),
      bytes_per_second_(settings.bytes_per_second),
      memory_({.tier = Tier::Device,
               .limit_bytes = settings.limit_bytes,
               .granularity = settings.granularity,
               .spoil = [this](Span block) { spoil(block); }}) {
  for (const auto& [lane, rate] : bytes_per_second_) {
    expect(rate > 0, fmt::format("{} bytes per second on the {} lane", rate, to_string(lane)));
  }
}

EmulatedDevice::~EmulatedDevice() {
  stop();
}

MemoryFacts EmulatedDevice::memory() const {
  return {memory_.limit_bytes(), memory_.limit_bytes() - memory_.live_bytes()};
}

void EmulatedDevice::spoil(Span block) {
  const auto fill = [block] {
    std::memset(block.data, nan_pattern, static_cast<std::size_t>(block.bytes));
  };
  if (calls_are_compute(Lane::Compute)) {
    fill();  // on any thread: a tensor may die on a lane
  } else {
    run(Lane::Compute, fill, "a block without contents");
  }
}

void EmulatedDevice::copy_slowly(Lane lane, Span to, Span from) {
  const auto found = bytes_per_second_.find(lane);
  const double rate = found == bytes_per_second_.end() ? 0 : found->second;
  const std::int64_t pieces = rate > 0 ? std::min(pieces_of_copy, to.bytes) : 1;
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t piece = 0; piece < pieces; ++piece) {
    const std::int64_t begin = to.bytes * piece / pieces;
    const std::int64_t end = to.bytes * (piece + 1) / pieces;
    std::memcpy(to.data + begin, from.data + begin, static_cast<std::size_t>(end - begin));
    if (rate <= 0) continue;
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    const double left = static_cast<double>(end) / rate - taken.count();
    if (left > 0 && !sleep(left)) return;
  }
}

}  // namespace garonne::device
