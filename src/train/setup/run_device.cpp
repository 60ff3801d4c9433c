#include "train/setup/run_device.hpp"

#include <cstdint>

#include "base/error.hpp"
#include "device/cpu_device.hpp"
#include "device/emulated_device.hpp"

namespace garonne::train {
namespace {

// Other ranks wait for what a lane here holds back.
constexpr double longest_hold_seconds = 0.02;

}  // namespace

DeviceKind device_kind(const RunConfig& config) {
  for (const DeviceKind kind : {DeviceKind::Cpu, DeviceKind::Emulated}) {
    if (config.run.device == to_string(kind)) return kind;
  }
  throw InternalError("no device is called " + config.run.device);
}

std::unique_ptr<device::Device> make_device(const RunConfig& config, int rank) {
  if (device_kind(config) == DeviceKind::Cpu) return std::make_unique<device::CpuDevice>();
  // Tensors are in a tier of their own, so none of its memory is used.
  return std::make_unique<device::EmulatedDevice>(device::EmulatedSettings{
      .limit_bytes = 0,
      .delay_seed =
          static_cast<std::uint64_t>(config.train.seed) + (static_cast<std::uint64_t>(rank) << 32),
      .longest_hold_seconds = longest_hold_seconds,
      .compute_thread = true});
}

}  // namespace garonne::train
