#include "device/lateness.hpp"

#include "base/philox.hpp"

namespace garonne::device {

Lateness lateness_of(std::uint64_t seed, Mark mark, double most_seconds) {
  const PhiloxBlock random = philox_at(philox_key(seed, to_string(mark.lane)), 0, 0, mark.number);
  constexpr int most_yields = 20;
  switch (random.word[0] % 4) {
    case 0:
      return {};
    case 1:
      return {.yields = 1 + static_cast<int>(random.word[1] % most_yields)};
    case 2:
      return {.seconds = most_seconds * static_cast<double>(random.word[1]) / 4294967296.0};
    default:
      return {.until_asked_for = true};
  }
}

}  // namespace garonne::device
