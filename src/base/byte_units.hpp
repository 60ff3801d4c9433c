// What parse_bytes() reads behind a number, for messages.
#pragma once

#include <string_view>

namespace garonne {

inline constexpr std::string_view byte_units = "B, kB, MB, GB, TB, KiB, MiB, GiB, TiB";

}  // namespace garonne
