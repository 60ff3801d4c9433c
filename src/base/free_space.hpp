// What is free on disks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace garonne {

// Bytes that this user may still write on the disk of a folder; nothing where the file system does
// not say.
std::optional<std::int64_t> free_bytes_in(const std::filesystem::path& folder);

}  // namespace garonne
