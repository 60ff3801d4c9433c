// What a forked program gets of whoever asks for it, as it goes over the socket: all that exec
// would have left to it, but for its threads' and libraries' own settings, which were read when
// they were loaded.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace garonne::forks {

// One sentence on standard error, and no further.
[[noreturn]] inline void fail(const char* what) {
  std::perror(what);
  _exit(127);
}

struct Settings {
  mode_t mask = 0;
  sigset_t ignored = {};
  cpu_set_t cores = {};
  std::array<rlimit, RLIM_NLIMITS> limits = {};
};

inline Settings settings_here() {
  Settings here;
  here.mask = umask(0);
  umask(here.mask);
  sigemptyset(&here.ignored);
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action = {};
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN)
      sigaddset(&here.ignored, number);
  }
  sched_getaffinity(0, sizeof(here.cores), &here.cores);
  for (int limit = 0; limit < RLIM_NLIMITS; ++limit)
    getrlimit(static_cast<__rlimit_resource_t>(limit),
              &here.limits[static_cast<std::size_t>(limit)]);
  return here;
}

inline void take_over(const Settings& settings) {
  umask(settings.mask);
  for (int number = 1; number < NSIG; ++number)
    signal(number, sigismember(&settings.ignored, number) == 1 ? SIG_IGN : SIG_DFL);
  sched_setaffinity(0, sizeof(settings.cores), &settings.cores);
  for (int limit = 0; limit < RLIM_NLIMITS; ++limit)
    setrlimit(static_cast<__rlimit_resource_t>(limit),
              &settings.limits[static_cast<std::size_t>(limit)]);
}

// Sizes come first; words and variables end with a zero each.
struct Header {
  std::uint32_t words = 0;
  std::uint32_t variables = 0;
  std::uint64_t bytes = 0;
  Settings settings;
};

constexpr int standard_files = 3;

inline sockaddr_un address_of(const char* path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (std::strlen(path) >= sizeof(address.sun_path)) {
    errno = ENAMETOOLONG;
    fail(path);
  }
  std::strcpy(address.sun_path, path);
  return address;
}

// All bytes, or false where the other end is gone.
inline bool write_all(int file, const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = send(file, from, bytes, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    from += done;
    bytes -= static_cast<std::size_t>(done);
  }
  return true;
}

inline bool read_all(int file, void* data, std::size_t bytes) {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t done = read(file, to, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    to += done;
    bytes -= static_cast<std::size_t>(done);
  }
  return true;
}

}  // namespace garonne::forks
