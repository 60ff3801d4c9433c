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

}  // namespace garonne
