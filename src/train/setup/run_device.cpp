#include "train/setup/run_device.hpp"

#include "base/error.hpp"
#include "device/cpu_device.hpp"

namespace garonne::train {

std::unique_ptr<device::Device> make_device(const RunConfig& config) {
  expect(config.run.device == "cpu", "no device is called " + config.run.device);
  return std::make_unique<device::CpuDevice>();
}

}  // namespace garonne::train
