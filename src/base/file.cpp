#include "base/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/bytes.hpp"
#include "base/config.hpp"
#include "base/error.hpp"
#include "base/partial_file.hpp"

namespace garonne {
namespace {

// A regular file that is open for reading, or why there is none.
struct OpenedFile {
  int descriptor = -1;
  std::int64_t size = 0;
  std::string failure;
  bool is_missing = false;
};

std::string kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "is a folder, not a file";
  if (S_ISFIFO(mode)) return "is a named pipe, not a file";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "is a device, not a file";
  return "is no regular file";
}

OpenedFile open_regular(const std::string& path) {
  OpenedFile file;
  // Without O_NONBLOCK the opening of a named pipe waits for somebody to write.
  file.descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file.descriptor < 0) {
    file.is_missing = errno == ENOENT;
    // A socket cannot be opened at all.
    file.failure = errno == ENXIO ? "is no regular file"
                                  : fmt::format("cannot be read: {}", std::strerror(errno));
    return file;
  }
  struct stat status {};
  if (::fstat(file.descriptor, &status) != 0) {
    file.failure = fmt::format("cannot be read: {}", std::strerror(errno));
  } else if (!S_ISREG(status.st_mode)) {
    file.failure = kind_of(status.st_mode);
  }
  file.size = status.st_size;
  if (!file.failure.empty()) {
    ::close(file.descriptor);
    file.descriptor = -1;
  }
  return file;
}

std::string beyond(std::int64_t size, std::int64_t most_bytes) {
  return fmt::format("has {}, and such a file has at most {}", format_bytes(size),
                     format_bytes(most_bytes));
}

}  // namespace

struct FileWriter::Hash {
  XXH3_state_t* state = XXH3_createState();
  Hash() { XXH3_128bits_reset(state); }
  ~Hash() { XXH3_freeState(state); }
  Hash(const Hash&) = delete;
  Hash& operator=(const Hash&) = delete;
};

FileWriter::FileWriter(const std::string& path) : path_(path), hash_(std::make_unique<Hash>()) {
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
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
  if (::fsync(descriptor_) != 0)
    throw IoError(path_, fmt::format("cannot be made durable: {}", std::strerror(errno)));
  close();
  const XXH128_hash_t hash = XXH3_128bits_digest(hash_->state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void FileWriter::close() {
  const int descriptor = descriptor_;
  descriptor_ = -1;
  if (::close(descriptor) != 0)
    throw IoError(path_, fmt::format("cannot be closed: {}", std::strerror(errno)));
}

FileReader::FileReader(const std::string& path) : path_(path) {
  const OpenedFile file = open_regular(path);
  if (!file.failure.empty()) throw IoError(path, file.failure);
  descriptor_ = file.descriptor;
  size_ = file.size;
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

std::string read_text_file(const std::string& path, std::int64_t most_bytes) {
  const FileReader file(path);
  if (file.size() > most_bytes) throw IoError(path, beyond(file.size(), most_bytes));
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, text.data(), text.size());
  return text;
}

namespace {

// A file of almost this name in the same folder; empty: there is none.
std::string near_file(const std::string& path) {
  // A folder of a run or of data may have millions.
  constexpr std::size_t most_names = 2000;
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  std::error_code error;
  std::vector<std::string> names;
  std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, error);
  for (; !error && entry != std::filesystem::directory_iterator() && names.size() < most_names;
       entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_regular_file(unknown)) names.push_back(entry->path().filename().string());
  }
  // A folder has its files in no order.
  std::sort(names.begin(), names.end());
  const std::string near = nearest_word(path.substr(folder.size()), names);
  return near.empty() ? "" : folder + near;
}

// Throws ConfigError of `key` and `value` where `path` is not to be read.
std::string read_or_refuse(const std::string& key, const std::string& value,
                           const std::string& path, const std::string& advice,
                           std::int64_t most_bytes) {
  const OpenedFile file = open_regular(path);
  if (file.descriptor >= 0) ::close(file.descriptor);
  if (!file.failure.empty()) {
    const std::string near = file.is_missing ? near_file(path) : "";
    throw ConfigError(
        key, value,
        file.failure + "; " + (near.empty() ? advice : fmt::format("did you mean {}?", near)));
  }
  if (file.size > most_bytes)
    throw ConfigError(key, value, beyond(file.size, most_bytes) + "; " + advice);
  return read_text_file(path, most_bytes);
}

}  // namespace

std::string read_given_file(const std::string& path, const std::string& advice,
                            std::int64_t most_bytes) {
  return read_or_refuse(path, "", path, advice, most_bytes);
}

std::string read_file_of_key(const std::string& key, const std::string& path,
                             const std::string& advice, std::int64_t most_bytes) {
  return read_or_refuse(key, path, path, advice, most_bytes);
}

void write_file_durably(const std::string& path, const std::string& text) {
  PartialFile partial(path);
  FileWriter file(partial.path());
  file.write(text.data(), text.size());
  file.finish();
  partial.publish();
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
