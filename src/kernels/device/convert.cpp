#include "kernels/device/convert.hpp"

#include "kernels/device/combine.hpp"
#include "kernels/device/spaces.hpp"

namespace garonne::kernels::device {

void to_bfloat16(const Place& place, const float* source, void* destination, std::int64_t n) {
  with_space(place, [&](const auto& space) {
    combine<float, BFloat16>(space, source, destination, n, false);
  });
}

void accumulate_from(const Place& place, ElementType type, const void* source, void* destination,
                     std::int64_t n, bool accumulate) {
  with_type_and_space(place, type, [&]<typename T>(T, const auto& space) {
    combine<T, Accumulation<T>>(space, source, destination, n, accumulate);
  });
}

}  // namespace garonne::kernels::device
