// Hashes of texts and files: 128-bit XXH3, as 32 hexadecimal digits. They find damage and
// difference, not malice.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace garonne {

std::string hash_text(std::string_view text);

// Reads the whole of a regular file; throws IoError naming it.
std::string hash_file(const std::string& path);

}  // namespace garonne
