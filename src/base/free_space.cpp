#include "base/free_space.hpp"

#include <algorithm>
#include <limits>
#include <system_error>

namespace garonne {

std::optional<std::int64_t> free_bytes_in(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error || space.available == static_cast<std::uintmax_t>(-1)) return std::nullopt;
  constexpr auto most = static_cast<std::uintmax_t>(std::numeric_limits<std::int64_t>::max());
  return static_cast<std::int64_t>(std::min(space.available, most));
}

}  // namespace garonne
