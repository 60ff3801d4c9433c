#include "kernels/initialise.hpp"

#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/device/initialise.hpp"
#include "kernels/dispatch.hpp"

namespace garonne::kernels {

void fill_normal(const Queue& queue, ElementType type, void* values, std::int64_t n, PhiloxKey key,
                 double deviation, std::int64_t first_element, std::uint64_t step,
                 std::uint64_t sample, const std::uint64_t* step_place,
                 const std::int64_t* sample_place) {
  const auto on_device = [&](const auto& place) {
    device::fill_normal(place, type, values, n, key, deviation, first_element, step, sample,
                        step_place, sample_place);
  };
  if (put_on_device(queue, on_device)) return;
  if (step_place != nullptr) step = *step_place;
  if (sample_place != nullptr) sample = static_cast<std::uint64_t>(*sample_place);
  const FillNormalArguments arguments{values, key, deviation, first_element, step, sample};
  const auto loop = (*loops().fill_normal)[type];
  for_ranges(queue, n, 256, 64,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

}  // namespace garonne::kernels
