#include "data/disk_space.hpp"

#include <fmt/format.h>

#include <filesystem>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/free_space.hpp"

namespace garonne::data {

namespace fs = std::filesystem;

void check_space(const std::string& output, std::int64_t needed) {
  const fs::path folder = fs::absolute(output).parent_path();
  if (!fs::is_directory(folder)) throw IoError(output, "its folder does not exist");
  const std::optional<std::int64_t> free = free_bytes_in(folder);
  if (free && *free < needed) {
    throw IoError(output, fmt::format("about {} are needed on its disk, {} are free",
                                      format_bytes(needed), format_bytes(*free)));
  }
}

}  // namespace garonne::data
