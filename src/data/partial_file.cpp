#include "data/partial_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "base/file.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;

void make_durable(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw IoError(path, std::strerror(errno));
  const int failed = ::fsync(descriptor);
  const int error = errno;
  ::close(descriptor);
  if (failed != 0) throw IoError(path, std::strerror(error));
}

}  // namespace

PartialFile::~PartialFile() {
  if (owned_) ::unlink(path_.c_str());
}

void PartialFile::publish() {
  make_durable(path_);
  if (std::rename(path_.c_str(), output_.c_str()) != 0) {
    throw IoError(output_, fmt::format("cannot rename {}: {}", path_, std::strerror(errno)));
  }
  owned_ = false;
  sync_directory(fs::absolute(output_).parent_path().string());
}

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
