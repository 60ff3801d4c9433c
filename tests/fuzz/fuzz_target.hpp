// What all fuzz targets share: a reader takes an input or refuses it with an error of its own; any
// other end is a finding.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.hpp"

// The interface of libFuzzer.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace garonne::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Runs a reader. Errors about what was given are its answer; others, InternalError among them, and
// messages of any length are not.
template <typename Read>
int take_or_refuse(const Read& read) {
  constexpr std::size_t most_message = 8192;
  try {
    read();
  } catch (const Error& error) {
    const bool is_answer = error.code() == ExitCode::Usage || error.code() == ExitCode::Data ||
                           error.code() == ExitCode::Infeasible;
    if (is_answer && std::string_view(error.what()).size() <= most_message) return 0;
    std::fprintf(stderr, "an error that is no answer: %s\n", error.what());
    std::abort();
  }
  return 0;
}

// What holds for everything that a reader takes.
inline void hold(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

// The input as a file, for readers that want one.
class MemoryFile {
 public:
  MemoryFile(const std::uint8_t* data, std::size_t size)
      : descriptor_(memfd_create("fuzz", MFD_CLOEXEC)) {
    hold(descriptor_ >= 0, "there is memory for a file");
    for (std::size_t done = 0; done < size;) {
      const ssize_t written = ::write(descriptor_, data + done, size - done);
      hold(written > 0, "a file in memory can be written");
      done += static_cast<std::size_t>(written);
    }
  }
  ~MemoryFile() { ::close(descriptor_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

}  // namespace garonne::fuzz
