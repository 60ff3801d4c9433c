// CUDA_VISIBLE_DEVICES: which devices of a node a process may see.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace garonne::device {

// One entry of the list: the index of a device of the node or the beginning of its UUID.
struct VisibleDevice {
  int index = -1;    // of all devices of the node; -1 where a UUID is given
  std::string uuid;  // "GPU-8932f937-…", which may be shortened; empty where an index is given

  friend bool operator==(const VisibleDevice&, const VisibleDevice&) = default;
};

// What the variable's value says; nothing where it is not set, which leaves all devices visible.
// ConfigError for instances of a device (MIG), for what is no list of indices and UUIDs, and for an
// entry that stands twice: the CUDA runtime ends the list at such entries and says nothing.
std::optional<std::vector<VisibleDevice>> read_visible_devices(const char* value);

// `count` is how many devices the CUDA runtime sees. ConfigError where that is none, or not as many
// as the variable names, with the first entry that the runtime did not take.
void check_visible_devices(const char* value, int count);

}  // namespace garonne::device
