// Places in containers, of what is counted with a sign.
#pragma once

#include <cstddef>
#include <cstdint>

namespace garonne {

// `i` is not negative.
constexpr std::size_t as_index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

}  // namespace garonne
