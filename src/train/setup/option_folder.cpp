#include "train/setup/option_folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <tuple>
#include <vector>

#include "base/cache_folder.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::int64_t seconds = 0;  // of the last use, since the epoch
  std::int64_t nanoseconds = 0;
  std::string name;
  std::int64_t bytes = 0;
};

// Also what a killed writer left unfinished.
bool is_entry(const std::string& name) {
  return name.starts_with("blocks-") && name.find(".json") != std::string::npos;
}

std::vector<Entry> entries_of(const std::string& folder) {
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    struct stat status {};
    // Another process may just have removed it.
    if (!is_entry(name) || ::lstat(at->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode))
      continue;
    entries.push_back({status.st_mtim.tv_sec, status.st_mtim.tv_nsec, name, status.st_size});
  }
  return entries;
}

}  // namespace

std::optional<std::string> OptionFolder::find(const std::string& name) {
  std::optional<std::string> text = read_cache_file(folder_, name);
  // Its age counts from the last use. Times of access are not kept everywhere.
  if (text) ::utimensat(AT_FDCWD, place_of(name).c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return text;
}

void OptionFolder::keep(const std::string& name, const std::string& text) {
  if (static_cast<std::int64_t>(text.size()) > most_bytes_) return;
  if (write_cache_file(folder_, name, text)) remove_the_oldest();
}

void OptionFolder::say_damaged(const std::string& reason) {
  std::fputs(("warning: " + reason + "; it is ignored and written anew\n").c_str(), stderr);
}

void OptionFolder::remove_the_oldest() const {
  std::vector<Entry> entries = entries_of(folder_);
  std::int64_t bytes = 0;
  for (const Entry& entry : entries) bytes += entry.bytes;
  if (bytes <= most_bytes_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.seconds, a.nanoseconds, a.name) < std::tie(b.seconds, b.nanoseconds, b.name);
  });
  for (const Entry& entry : entries) {
    if (bytes <= most_bytes_) return;
    std::error_code gone;  // whether by this process or by another
    fs::remove(folder_ + "/" + entry.name, gone);
    bytes -= entry.bytes;
  }
}

}  // namespace garonne::train
