#include "base/hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/file.hpp"

namespace garonne {
namespace {

std::string digits(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

}  // namespace

std::string hash_text(std::string_view text) {
  return digits(XXH3_128bits(text.data(), text.size()));
}

std::string hash_file(const std::string& path) {
  const FileReader file(path);
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<char> block(std::size_t{1} << 20);
  for (std::int64_t offset = 0; offset < file.size();) {
    const auto count = std::min(static_cast<std::int64_t>(block.size()), file.size() - offset);
    file.read(offset, block.data(), static_cast<std::size_t>(count));
    XXH3_128bits_update(state.get(), block.data(), static_cast<std::size_t>(count));
    offset += count;
  }
  return digits(XXH3_128bits_digest(state.get()));
}

}  // namespace garonne
