#include "data/hdf5/foreign_reader.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/error.hpp"

namespace garonne::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* program_name = "garonne-hdf5-reader";
// Memory that was not written is filled with what is no address: where HDF5 takes it for one it
// crashes there and not, by chance, here. glibc's; others leave it as it is.
constexpr const char* filled_memory =
    "GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.perturb=165";

constexpr double busy_machine = 10;
constexpr double most_seconds_to_end = 0.5;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Beside the running program, or in bin/ beside its folder, as tests need it.
std::string program_beside(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const fs::path& place : {folder, folder.parent_path() / "bin"}) {
    const fs::path candidate = place / program_name;
    if (fs::is_regular_file(candidate, error)) return candidate.string();
  }
  throw IoError(path, fmt::format("HDF5 files are read with the help of {}, which should "
                                  "be in {}, beside this program",
                                  program_name, folder.string()));
}

void append_text(std::string& bytes, const std::string& text) {
  const auto length = static_cast<std::uint32_t>(text.size());
  bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
  bytes += text;
}

// Of a process that ended, as waitpid says.
[[noreturn]] void refuse(const std::string& path, const std::string& label, int status,
                         bool out_of_time) {
  std::string how = "HDF5 ended";
  if (out_of_time || (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)) {
    how = "HDF5 found no end";
  } else if (WIFSIGNALED(status)) {
    how = fmt::format("HDF5 crashed with signal {}", WTERMSIG(status));
  }
  throw IoError(path, fmt::format("{} cannot be read: {} in it; the file is damaged", label, how));
}

}  // namespace

void ForeignReader::start(const std::string& path) {
  const std::string program = program_.empty() ? program_beside(path) : program_;
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw IoError(path, fmt::format("no connection to {}: {}", program, std::strerror(errno)));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  // In a group of its own: what Ctrl-C asks of this program is not for it. What the thread that
  // starts it leaves to others it receives itself.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  std::string seconds = fmt::format("{}", least_seconds_);
  char* const arguments[] = {const_cast<char*>(program_name), seconds.data(), nullptr};
  std::vector<char*> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("GLIBC_TUNABLES=")) environment.push_back(*entry);
  }
  environment.push_back(const_cast<char*>(filled_memory));
  environment.push_back(nullptr);
  const int error =
      posix_spawn(&process_, program.c_str(), &actions, &attributes, arguments, environment.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  socket_ = ends[0];
  if (error != 0) {
    process_ = -1;
    stop();
    throw IoError(path, fmt::format("cannot start {}: {}", program, std::strerror(error)));
  }
}

void ForeignReader::stop() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  // It ends by itself, and takes the one that reads with it: killed, it would leave that to others.
  const double deadline = now() + most_seconds_to_end;
  while (process_ > 0 && ::waitpid(process_, nullptr, WNOHANG) == 0) {
    if (now() > deadline) ::kill(process_, SIGKILL);
    ::usleep(200);
  }
  process_ = -1;
}

void ForeignReader::fail(const std::string& path, const std::string& label, bool out_of_time) {
  int status = 0;
  if (out_of_time) {
    stop();
    refuse(path, label, status, out_of_time);
  }
  while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
  }
  process_ = -1;
  stop();
  refuse(path, label, status, out_of_time);
}

void ForeignReader::send(const std::string& bytes, const std::string& path,
                         const std::string& label) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t sent = ::send(socket_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) fail(path, label, false);
    done += static_cast<std::size_t>(sent);
  }
}

void ForeignReader::receive(void* bytes, std::size_t count, double deadline,
                            const std::string& path, const std::string& label) {
  auto* next = static_cast<char*>(bytes);
  while (count > 0) {
    const double left = deadline - now();
    if (left <= 0) fail(path, label, true);
    pollfd waited = {socket_, POLLIN, 0};
    const int ready = ::poll(&waited, 1, static_cast<int>(left * 1000) + 1);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t got = ::recv(socket_, next, count, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) fail(path, label, false);
    next += got;
    count -= static_cast<std::size_t>(got);
  }
}

std::uint32_t ForeignReader::receive_number(double deadline, const std::string& path,
                                            const std::string& label) {
  std::uint32_t number = 0;
  receive(&number, sizeof number, deadline, path, label);
  return number;
}

std::string ForeignReader::try_structure(const std::string& path) {
  const std::vector<std::string> reasons =
      ask(ForeignKind::Structure, path, "/", "", "its structure");
  return reasons.empty() ? "" : reasons[0];
}

std::vector<std::string> ForeignReader::ask(ForeignKind kind, const std::string& path,
                                            const std::string& object, const std::string& attribute,
                                            const std::string& label) {
  if (process_ < 0) start(path);
  std::string request(reinterpret_cast<const char*>(&kind), sizeof kind);
  for (const std::string* text : {&path, &object, &attribute}) append_text(request, *text);
  if (request.size() > most_request_bytes) throw IoError(path, label + " has too long a name");
  send(request, path, label);

  // Own files, too, depend on the walk: processor time is limited there, and a machine that is busy
  // is no reason to refuse one.
  const double deadline =
      now() + (kind == ForeignKind::Structure ? busy_machine : 1) * patience_seconds_;
  const auto state = static_cast<ForeignState>(receive_number(deadline, path, label));
  if (state == ForeignState::TooLong) {
    throw IoError(path, fmt::format("{} is longer than {} MiB", label, most_answer_bytes >> 20));
  }
  if (state == ForeignState::Ended) {
    refuse(path, label, static_cast<int>(receive_number(deadline, path, label)), false);
  }
  if (state != ForeignState::Done) {
    throw IoError(path, fmt::format("{} cannot be read; the file is damaged", label));
  }
  const std::uint32_t count = receive_number(deadline, path, label);
  std::vector<std::string> texts;
  std::uint64_t bytes = 0;
  for (std::uint32_t number = 0; number < count; ++number) {
    const std::uint32_t length = receive_number(deadline, path, label);
    bytes += sizeof length + length;
    // What a damaged file makes of the other process is no reason to believe it.
    if (bytes > most_answer_bytes) fail(path, label, true);
    texts.emplace_back(length, '\0');
    receive(texts.back().data(), length, deadline, path, label);
  }
  return texts;
}

}  // namespace garonne::data
