#include "base/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"

namespace garonne {

struct FileWriter::Hash {
  XXH3_state_t* state = XXH3_createState();
  Hash() { XXH3_128bits_reset(state); }
  ~Hash() { XXH3_freeState(state); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
};

FileWriter::FileWriter(const std::string& path) : path_(path), hash_(std::make_unique<Hash>()) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0)
    throw IoError(path, fmt::format("cannot be written: {}", std::strerror(errno)));
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileWriter::write(const void* data, std::size_t bytes) {
  XXH3_128bits_update(hash_->state, data, bytes);
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0)
      throw IoError(path_, fmt::format("cannot be written: {}", std::strerror(errno)));
    next += written;
    bytes -= static_cast<std::size_t>(written);
  }
}

std::string FileWriter::finish() {
  const int descriptor = descriptor_;
  if (::fsync(descriptor) != 0)
    throw IoError(path_, fmt::format("cannot be made durable: {}", std::strerror(errno)));
  descriptor_ = -1;
  if (::close(descriptor) != 0)
    throw IoError(path_, fmt::format("cannot be closed: {}", std::strerror(errno)));
  const XXH128_hash_t hash = XXH3_128bits_digest(hash_->state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

FileReader::FileReader(const std::string& path) : path_(path) {
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) throw IoError(path, fmt::format("cannot be read: {}", std::strerror(errno)));
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    throw IoError(path, "is no regular file");
  }
  size_ = status.st_size;
}

FileReader::~FileReader() {
  ::close(descriptor_);
}

void FileReader::read(std::int64_t offset, void* destination, std::size_t bytes) const {
  char* next = static_cast<char*>(destination);
  while (bytes > 0) {
    const ssize_t count = ::pread(descriptor_, next, bytes, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw IoError(path_, fmt::format("cannot be read: {}", std::strerror(errno)));
    if (count == 0) throw IoError(path_, "ends early: it is truncated");
    next += count;
    offset += count;
    bytes -= static_cast<std::size_t>(count);
  }
}

std::string read_text_file(const std::string& path) {
  const FileReader file(path);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

void write_file_durably(const std::string& path, const std::string& text) {
  const std::string partial = path + ".partial";
  FileWriter file(partial);
  file.write(text.data(), text.size());
  file.finish();
  std::error_code error;
  std::filesystem::rename(partial, path, error);
  if (error) throw IoError(path, "cannot be renamed into place: " + error.message());
  const auto folder = std::filesystem::path(path).parent_path();
  sync_directory(folder.empty() ? "." : folder.string());
}

void sync_directory(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    throw IoError(path, fmt::format("cannot be opened: {}", std::strerror(errno)));
  const int result = ::fsync(descriptor);
  const int reason = errno;
  ::close(descriptor);
  // Some file systems cannot sync a folder and say EINVAL; their renames are as durable as they
  // get.
  if (result != 0 && reason != EINVAL)
    throw IoError(path, fmt::format("cannot be made durable: {}", std::strerror(reason)));
}

}  // namespace garonne
