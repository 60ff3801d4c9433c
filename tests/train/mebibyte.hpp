// What tests of memory count in.
#pragma once

#include <cstdint>

namespace garonne::train {

inline constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

}  // namespace garonne::train
