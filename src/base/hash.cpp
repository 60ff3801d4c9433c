#include "base/hash.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.hpp"

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
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file) throw IoError(path, std::strerror(errno));
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  std::vector<char> block(std::size_t{1} << 20);
  while (const std::size_t count = std::fread(block.data(), 1, block.size(), file.get())) {
    XXH3_128bits_update(state.get(), block.data(), count);
  }
  if (std::ferror(file.get()) != 0) throw IoError(path, "cannot be read to its end");
  return digits(XXH3_128bits_digest(state.get()));
}

}  // namespace garonne
