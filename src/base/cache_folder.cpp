#include "base/cache_folder.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/partial_file.hpp"

namespace garonne {
namespace {

namespace fs = std::filesystem;

bool is_mine(const struct stat& status) {
  return status.st_uid == ::geteuid();
}

bool others_write(const struct stat& status) {
  return (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
}

// An empty variable is none.
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Everything above the folder may be shared; it itself is for its user alone.
bool make_folder(const std::string& folder) {
  std::error_code error;
  const fs::path above = fs::path(folder).parent_path();
  if (!above.empty()) fs::create_directories(above, error);
  return ::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST;
}

}  // namespace

std::string cache_folder() {
  if (const std::string given = environment("GARONNE_CACHE"); !given.empty()) return given;
  if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/garonne";
  if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/garonne";
  const std::string temporary = environment("TMPDIR");
  return fmt::format("{}/garonne-cache-{}", temporary.empty() ? "/tmp" : temporary, ::geteuid());
}

std::string cache_refusal(const std::string& folder) {
  struct stat link {};
  struct stat status {};
  if (::lstat(folder.c_str(), &link) != 0) {
    return errno == ENOENT || errno == ENOTDIR
               ? ""
               : fmt::format("cannot be read: {}", std::strerror(errno));
  }
  // A link of the user's own leads where the user wants.
  if (S_ISLNK(link.st_mode) && !is_mine(link)) return "is a link that belongs to another user";
  if (::stat(folder.c_str(), &status) != 0)
    return fmt::format("cannot be read: {}", std::strerror(errno));
  if (!S_ISDIR(status.st_mode)) return "is no folder";
  if (!is_mine(status)) return "belongs to another user";
  if (others_write(status)) return "may be written to by others; `chmod go-w` makes it private";
  return "";
}

std::optional<std::string> read_cache_file(const std::string& folder, const std::string& name) {
  if (folder.empty() || !cache_refusal(folder).empty()) return std::nullopt;
  const std::string path = folder + "/" + name;
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || !is_mine(status) ||
      status.st_size > most_json_bytes)
    return std::nullopt;
  try {
    return read_text_file(path);
  } catch (const IoError&) {
    return std::nullopt;  // gone or unreadable, which a cache may be
  }
}

bool write_cache_file(const std::string& folder, const std::string& name, const std::string& text) {
  if (folder.empty() || !make_folder(folder) || !cache_refusal(folder).empty()) return false;
  try {
    PartialFile partial(folder + "/" + name);
    FileWriter file(partial.path());
    file.write(text.data(), text.size());
    file.close();
    partial.publish_without_waiting();
    return true;
  } catch (const IoError&) {
    return false;
  }
}

}  // namespace garonne
