// Where on its node a PCI device is: which memory and which cores are near it.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace garonne::device {

struct DeviceLocality {
  std::optional<int> numa_node;  // none where the node has one memory, or nothing is known
  std::string cores;             // as the system writes them, "0-15,32-47"; empty: not known
};

// By what the system says in `system_folder`/bus/pci/devices. `bus_id` as CUDA writes it:
// "0000:3B:00.0", or with eight digits of domain. Nothing is known where there is no such entry.
DeviceLocality locality_of(const std::string& bus_id, const std::string& system_folder = "/sys");

// The cores of "0-3,8", ascending. InternalError for what is no such list.
std::vector<int> cores_of_list(const std::string& list);

}  // namespace garonne::device
