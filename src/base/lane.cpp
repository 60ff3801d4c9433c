#include "base/lane.hpp"

#include "base/error.hpp"

namespace garonne {

const LaneKind& kind_of(Lane lane) {
  const std::span<const LaneKind> all = lanes();
  const auto number = static_cast<std::size_t>(lane);
  expect(number < all.size(), "unknown lane");
  return all[number];
}

std::string_view to_string(Lane lane) {
  return kind_of(lane).name;
}

}  // namespace garonne
