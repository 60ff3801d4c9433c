#include "train/checkpoint/gpu_record.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>

namespace garonne::train {

nlohmann::ordered_json to_json(const device::GpuFacts& facts) {
  return {{"name", facts.name},
          {"architecture", facts.architecture},
          {"memory_bytes", facts.memory_bytes},
          {"driver", facts.driver},
          {"driver_cuda", facts.driver_cuda},
          {"runtime_cuda", facts.runtime_cuda}};
}

device::GpuFacts gpu_from_json(const JsonPlace& place) {
  return {.name = place.key("name").text(),
          .architecture = static_cast<int>(place.key("architecture").integer(0, INT32_MAX)),
          .memory_bytes = place.key("memory_bytes").integer(0),
          .driver = place.key("driver").text(),
          .driver_cuda = place.key("driver_cuda").text(),
          .runtime_cuda = place.key("runtime_cuda").text()};
}

}  // namespace garonne::train
