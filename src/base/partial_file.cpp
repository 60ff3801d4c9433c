#include "base/partial_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "base/file.hpp"

namespace garonne {
namespace {

std::string random_suffix() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits))
    throw InternalError("the system has no random numbers");
  return fmt::format("{:016x}", bits);
}

void make_durable(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (descriptor < 0)
    throw IoError(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  const int failed = ::fsync(descriptor);
  const int reason = errno;
  ::close(descriptor);
  if (failed != 0)
    throw IoError(path, fmt::format("cannot be made durable: {}", std::strerror(reason)));
}

}  // namespace

PartialFile::PartialFile(std::string target) : target_(std::move(target)) {
  int descriptor = -1;
  do {
    path_ = fmt::format("{}.partial-{}", target_, random_suffix());
    descriptor = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  } while (descriptor < 0 && (errno == EEXIST || errno == EINTR));
  if (descriptor < 0)
    throw IoError(target_, fmt::format("cannot be written: {}", std::strerror(errno)));
  ::close(descriptor);
}

PartialFile::~PartialFile() {
  if (owned_) ::unlink(path_.c_str());
}

void PartialFile::publish() {
  make_durable(path_);
  publish_without_waiting();
  const auto folder = std::filesystem::path(target_).parent_path();
  sync_directory(folder.empty() ? "." : folder.string());
}

void PartialFile::publish_without_waiting() {
  if (std::rename(path_.c_str(), target_.c_str()) != 0)
    throw IoError(target_, fmt::format("cannot be renamed into place: {}", std::strerror(errno)));
  owned_ = false;
}

}  // namespace garonne
