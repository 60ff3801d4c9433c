// A folder for the files of one input, which is gone with it.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace garonne::fuzz {

class ScratchFolder {
 public:
  // Never twice the same: what is kept by the name of a file is not another input's.
  ScratchFolder() {
    static std::uint64_t number = 0;
    path_ = home() / std::to_string(++number);
    std::filesystem::create_directory(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  // In $TMPDIR, or in memory where there is a place in it: thousands are made and removed.
  static const std::filesystem::path& home() {
    struct Home {
      std::filesystem::path path = place() / ("garonne-fuzz-" + std::to_string(getpid()));
      Home() { std::filesystem::create_directories(path); }
      ~Home() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
      }
    };
    static const Home home;
    return home.path;
  }

  static std::filesystem::path place() {
    const std::filesystem::path memory = "/dev/shm";
    const bool chosen = std::getenv("TMPDIR") != nullptr || ::access(memory.c_str(), W_OK) != 0;
    return chosen ? std::filesystem::temp_directory_path() : memory;
  }

  std::filesystem::path path_;
};

}  // namespace garonne::fuzz
