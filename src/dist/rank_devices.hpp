// Which GPU each rank works on: what the ranks of a node tell each other, and the table of it.
#pragma once

#include <string>

#include "device/rank_device.hpp"
#include "dist/session.hpp"

namespace garonne::dist {

struct RankDevices {
  device::DeviceAssignment mine;
  // On rank 0, a line for each rank and those of device::describe: host, rank, device, address,
  // memory, who shares it, NUMA node, cores. Empty elsewhere.
  std::string table;
};

// By node rank and visible devices; this rank's threads are not yet on the device. `visible` is the
// value of CUDA_VISIBLE_DEVICES, or null; `one_process_for_all` as in device::NodeFacts. Throws an
// AgreedError, with code 2, where some rank has no device, or none that lets it in, and, where
// `nccl`, where ranks share one. Collective over all ranks.
RankDevices assign_devices(Session& session, device::CudaRuntime& runtime, const char* visible,
                           bool one_process_for_all, bool nccl);

}  // namespace garonne::dist
