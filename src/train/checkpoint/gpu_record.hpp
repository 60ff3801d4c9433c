// The GPU of a run as its files have it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "base/json_input.hpp"
#include "device/gpu_facts.hpp"

namespace garonne::train {

nlohmann::ordered_json to_json(const device::GpuFacts& facts);
// IoError as of any key of a file of a run.
device::GpuFacts gpu_from_json(const JsonPlace& place);

}  // namespace garonne::train
