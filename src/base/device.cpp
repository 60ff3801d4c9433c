#include "base/device.hpp"

#include "base/error.hpp"

namespace garonne {

std::string_view to_string(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::Cpu:
      return "cpu";
    case DeviceKind::Emulated:
      return "emulated";
    case DeviceKind::Cuda:
      return "cuda";
  }
  throw InternalError("unknown kind of device");
}

std::string_view to_string(Tier tier) {
  switch (tier) {
    case Tier::Device:
      return "device";
    case Tier::Host:
      return "host";
    case Tier::Disk:
      return "disk";
  }
  throw InternalError("unknown tier of memory");
}

std::string_view to_string(Lane lane) {
  switch (lane) {
    case Lane::Compute:
      return "compute";
    case Lane::Message:
      return "message";
    case Lane::Collective:
      return "collective";
    case Lane::CopyOut:
      return "copy-out";
    case Lane::CopyIn:
      return "copy-in";
    case Lane::DiskWrite:
      return "disk-write";
    case Lane::DiskRead:
      return "disk-read";
    case Lane::HostCompute:
      return "host-compute";
  }
  throw InternalError("unknown lane");
}

}  // namespace garonne
