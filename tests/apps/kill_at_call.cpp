// Preloaded into a rank: kills it, or all ranks, inside the nth of its calls that change files
// under a folder. Says in a log where.
//   KILL_RANK    the rank that counts
//   KILL_CALL    write, fsync, rename, unlink, read, send, group (of MPI, made), start or end (of
//                MPI), disk-write or disk-read (at a place in a file), or compute: where the main
//                thread is within an operation of LibTorch
//   KILL_NUMBER  of the call, from 1
//   KILL_UNDER   part of the path of what counts
//   KILL_WHOM    one, all, stop for one that is stopped, hold for one whose call takes longer, fail
//                for one whose write or fsync finds no space, or whose disk fails; slow for one
//                whose calls take ten times as long from then on
//   KILL_SECONDS that it takes longer
//   KILL_LOG     gets a line: call, number, path, before | half | after
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

std::string environment(const char* name) {
  const char* value = getenv(name);
  return value == nullptr ? "" : value;
}

struct Order {
  std::string call = environment("KILL_CALL");
  std::string under = environment("KILL_UNDER");
  std::string log = environment("KILL_LOG");
  bool all = environment("KILL_WHOM") == "all";
  bool stops = environment("KILL_WHOM") == "stop";
  bool holds = environment("KILL_WHOM") == "hold";
  bool fails = environment("KILL_WHOM") == "fail";
  bool slows = environment("KILL_WHOM") == "slow";
  long seconds = atol(environment("KILL_SECONDS").c_str());
  long number = atol(environment("KILL_NUMBER").c_str());
  // The program's own helpers have its environment, and count nothing.
  bool counts = !log.empty() && environment("OMPI_COMM_WORLD_RANK") == environment("KILL_RANK") &&
                strcmp(program_invocation_short_name, "garonne-hdf5-reader") != 0;
};

// Made at the first call, which may come before this library's own constructors.
const Order& order() {
  static const Order one;
  return one;
}
std::atomic<long> calls{0};

// Of the children of the same launcher.
std::vector<pid_t> ranks() {
  std::vector<pid_t> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const pid_t process = static_cast<pid_t>(atol(entry.path().filename().c_str()));
    if (process <= 0) continue;
    std::ifstream status(entry.path() / "status");
    for (std::string word; status >> word;) {
      if (word != "PPid:") continue;
      pid_t parent = 0;
      status >> parent;
      if (parent == getppid() && process != getpid()) found.push_back(process);
      break;
    }
  }
  return found;
}

// Returns where the rank is held, in the end, and where its call fails.
void strike(const std::string& path, const char* when) {
  const int log = open(order().log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const std::string line =
      order().call + " " + std::to_string(order().number) + " " + path + " " + when + "\n";
  // Not through what is counted.
  syscall(SYS_write, log, line.data(), line.size());
  if (order().all) {
    for (const pid_t rank : ranks()) kill(rank, SIGKILL);
    kill(getppid(), SIGKILL);
  }
  if (order().holds) {
    sleep(static_cast<unsigned>(order().seconds));
    return;
  }
  if (order().fails || order().slows) return;
  kill(getpid(), order().stops ? SIGSTOP : SIGKILL);
  while (true) pause();
}

std::string path_of(int descriptor) {
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = readlink(link.c_str(), path, sizeof path);
  return length <= 0 ? "" : std::string(path, static_cast<std::size_t>(length));
}

// Whether this is the call to die in.
bool strikes(const char* call, const std::string& path) {
  if (!order().counts || order().call != call) return false;
  if (path.find(order().under) == std::string::npos) return false;
  return ++calls == order().number;
}

template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

std::string in_folder(int folder, const char* path) {
  return path[0] == '/' || folder == AT_FDCWD ? path : path_of(folder) + "/" + path;
}

// The call is made where `number` is odd, so that both sides of it are seen.
template <typename Call>
auto around(const char* call, const std::string& path, const Call& made) {
  if (!strikes(call, path)) return made();
  const bool before = order().number % 2 == 0 || order().holds;
  if (before) strike(path, "before");
  const auto result = made();
  if (!before) strike(path, "after");
  return result;
}

}  // namespace

namespace {

// At a place in a file. Where it fails, so do all that follow.
template <typename Call>
ssize_t at_place(const char* call, int descriptor, int failure, const Call& made) {
  if (!order().counts || order().call != call) return made();
  const std::string path = path_of(descriptor);
  if (path.find(order().under) == std::string::npos || ++calls < order().number) return made();
  if (calls == order().number) strike(path, "before");
  if (order().fails) {
    errno = failure;
    return -1;
  }
  const auto begun = std::chrono::steady_clock::now();
  const ssize_t moved = made();
  if (order().slows) std::this_thread::sleep_for(9 * (std::chrono::steady_clock::now() - begun));
  return moved;
}

}  // namespace

extern "C" {

ssize_t pwrite64(int descriptor, const void* data, size_t bytes, off64_t offset) {
  static auto* const next = real<ssize_t(int, const void*, size_t, off64_t)>("pwrite64");
  return at_place("disk-write", descriptor, ENOSPC,
                  [&] { return next(descriptor, data, bytes, offset); });
}

ssize_t pwrite(int descriptor, const void* data, size_t bytes, off_t offset) {
  return pwrite64(descriptor, data, bytes, offset);
}

ssize_t write(int descriptor, const void* data, size_t bytes) {
  static auto* const next = real<ssize_t(int, const void*, size_t)>("write");
  if (order().counts && order().call == "write") {
    const std::string path = path_of(descriptor);
    if (strikes("write", path)) {
      if (!order().holds) next(descriptor, data, bytes / 2);
      strike(path, "half");
      if (order().fails) {
        errno = ENOSPC;
        return -1;
      }
    }
  }
  return next(descriptor, data, bytes);
}

ssize_t pread64(int descriptor, void* data, size_t bytes, off64_t offset) {
  static auto* const next = real<ssize_t(int, void*, size_t, off64_t)>("pread64");
  if (!order().counts) return next(descriptor, data, bytes, offset);
  if (order().call == "disk-read") {
    return at_place("disk-read", descriptor, EIO,
                    [&] { return next(descriptor, data, bytes, offset); });
  }
  return around("read", path_of(descriptor), [&] { return next(descriptor, data, bytes, offset); });
}

ssize_t pread(int descriptor, void* data, size_t bytes, off_t offset) {
  return pread64(descriptor, data, bytes, offset);
}

int fsync(int descriptor) {
  static auto* const next = real<int(int)>("fsync");
  if (!order().counts) return next(descriptor);
  const std::string path = path_of(descriptor);
  if (order().fails && strikes("fsync", path)) {
    strike(path, "before");
    errno = ENOSPC;
    return -1;
  }
  return around("fsync", path, [&] { return next(descriptor); });
}

int rename(const char* from, const char* to) {
  static auto* const next = real<int(const char*, const char*)>("rename");
  return around("rename", to, [&] { return next(from, to); });
}

int unlink(const char* path) {
  static auto* const next = real<int(const char*)>("unlink");
  return around("unlink", path, [&] { return next(path); });
}

int unlinkat(int folder, const char* path, int flags) {
  static auto* const next = real<int(int, const char*, int)>("unlinkat");
  if (!order().counts) return next(folder, path, flags);
  return around("unlink", in_folder(folder, path), [&] { return next(folder, path, flags); });
}

int rmdir(const char* path) {
  static auto* const next = real<int(const char*)>("rmdir");
  return around("unlink", path, [&] { return next(path); });
}

// LibTorch asks for it within operations.
int omp_get_max_threads() {
  static auto* const next = real<int()>("omp_get_max_threads");
  if (order().call == "compute" && gettid() == getpid()) {
    return around("compute", order().under, [&] { return next(); });
  }
  return next();
}

// Handles are passed on as they are.
int MPI_Isend(const void* data, int count, void* type, int rank, int tag, void* communicator,
              void** request) {
  static auto* const next =
      real<int(const void*, int, void*, int, int, void*, void**)>("MPI_Isend");
  return around("send", order().under,
                [&] { return next(data, count, type, rank, tag, communicator, request); });
}

int MPI_Init_thread(int* count, char*** words, int required, int* provided) {
  static auto* const next = real<int(int*, char***, int, int*)>("MPI_Init_thread");
  if (strikes("start", order().under)) strike(order().under, "before");
  return next(count, words, required, provided);
}

int MPI_Finalize() {
  static auto* const next = real<int()>("MPI_Finalize");
  if (strikes("end", order().under)) strike(order().under, "before");
  return next();
}

int MPI_Comm_create_group(void* communicator, void* group, int tag, void** made) {
  static auto* const next = real<int(void*, void*, int, void**)>("MPI_Comm_create_group");
  return around("group", order().under, [&] { return next(communicator, group, tag, made); });
}

}  // extern "C"
