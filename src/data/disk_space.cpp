#include "data/disk_space.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "base/bytes.hpp"
#include "base/error.hpp"

namespace garonne::data {

namespace fs = std::filesystem;

void check_space(const std::string& output, std::int64_t needed) {
  const fs::path folder = fs::absolute(output).parent_path();
  if (!fs::is_directory(folder)) throw IoError(output, "its folder does not exist");
  std::error_code error;
  const fs::space_info space = fs::space(folder, error);
  if (error || space.available == static_cast<std::uintmax_t>(-1)) return;
  if (space.available < static_cast<std::uintmax_t>(needed)) {
    throw IoError(output,
                  fmt::format("about {} are needed on its disk, {} are free", format_bytes(needed),
                              format_bytes(static_cast<std::int64_t>(space.available))));
  }
}

}  // namespace garonne::data
