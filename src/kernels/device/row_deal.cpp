#include "kernels/device/row_deal.hpp"

#include "kernels/device/spaces.hpp"
#include "kernels/device/team.hpp"

#include <algorithm>

namespace garonne::kernels::device {

namespace {

// As many as a launch takes along; more come in several.
constexpr std::size_t slots_at_once = 256;

// A team has a row of a line.
struct MoveRows {
  const double* from;
  double* to;
  bool gathers;  // from slots to rows
  std::int64_t rows;
  std::int64_t all_slots;
  std::int64_t first_slot;
  std::int64_t width;
  std::int64_t count;
  std::int64_t slots[slots_at_once];

  template <typename Team>
  KOKKOS_FUNCTION void operator()(const Team& team, std::int64_t index) const {
    const std::int64_t line = index / count;
    const std::int64_t row = slots[index % count];
    if (row < 0) return;
    const std::int64_t slot = (line * all_slots + first_slot + index % count) * width;
    const std::int64_t place = (line * rows + row) * width;
    team.each(width, [&](std::int64_t i) {
      if (gathers) {
        to[place + i] = from[slot + i];
      } else {
        to[slot + i] = from[place + i];
      }
    });
  }
};

void move_rows(const Place& place, bool gathers, const double* from, double* to,
               std::span<const std::int64_t> slots, std::int64_t lines, std::int64_t rows,
               std::int64_t width) {
  with_space(place, [&](const auto& space) {
    for (std::size_t first = 0; first < slots.size(); first += slots_at_once) {
      MoveRows kernel{};
      kernel.from = from;
      kernel.to = to;
      kernel.gathers = gathers;
      kernel.rows = rows;
      kernel.all_slots = static_cast<std::int64_t>(slots.size());
      kernel.first_slot = static_cast<std::int64_t>(first);
      kernel.width = width;
      const auto part = slots.subspan(first, std::min(slots_at_once, slots.size() - first));
      kernel.count = static_cast<std::int64_t>(part.size());
      std::copy(part.begin(), part.end(), kernel.slots);
      for_teams<4>(space, lines * kernel.count, 0, kernel);
    }
  });
}

}  // namespace

void gather_rows(const Place& place, const double* dealt, std::span<const std::int64_t> slots,
                 double* whole, std::int64_t lines, std::int64_t rows, std::int64_t width) {
  move_rows(place, true, dealt, whole, slots, lines, rows, width);
}

void deal_rows(const Place& place, const double* whole, std::span<const std::int64_t> slots,
               double* dealt, std::int64_t lines, std::int64_t rows, std::int64_t width) {
  move_rows(place, false, whole, dealt, slots, lines, rows, width);
}

}  // namespace garonne::kernels::device
