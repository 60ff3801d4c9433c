#include "kernels/device/place.hpp"

namespace garonne::kernels::device {

std::string_view to_string(Space space) {
  switch (space) {
    case Space::Serial:
      return "serial";
    case Space::OpenMp:
      return "openmp";
    case Space::Cuda:
      return "cuda";
  }
  return "?";
}

}  // namespace garonne::kernels::device
