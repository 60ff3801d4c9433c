#include "base/multiples.hpp"

#include <fmt/format.h>

namespace garonne {

std::string nearest_multiples(std::int64_t value, std::int64_t step) {
  const std::int64_t below = value / step * step;
  if (below == 0) return fmt::format("the nearest that does is {}", step);
  return fmt::format("the nearest that do are {} and {}", below, below + step);
}

}  // namespace garonne
