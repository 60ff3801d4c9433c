// Preloaded into the program: with GARONNE_FORK_SOCKET it does not start, but waits at that socket
// with all its libraries loaded, and runs in a fork for each client (forked.cpp) that comes there.
// Of the half second that a start takes loading is the larger part, and tests start thousands of
// times. Ends where its standard input does.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "fork_request.hpp"

namespace {

using namespace garonne::forks;
using Main = int (*)(int, char**, char**);

Main program = nullptr;
// What a forked program was given; it may change both as it likes.
std::vector<char> words_and_variables;
std::vector<char*> arguments;

struct Request {
  Header header;
  std::vector<char> text;
  int files[standard_files] = {-1, -1, -1};
};

bool receive(int client, Request& request) {
  iovec into = {&request.header, sizeof(request.header)};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(request.files))] = {};
  msghdr message = {};
  message.msg_iov = &into;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof(room);
  const ssize_t taken = recvmsg(client, &message, MSG_WAITALL);
  const cmsghdr* files = CMSG_FIRSTHDR(&message);
  if (taken != static_cast<ssize_t>(sizeof(request.header)) || files == nullptr) return false;
  std::memcpy(request.files, CMSG_DATA(files), sizeof(request.files));
  request.text.resize(request.header.bytes);
  return read_all(client, request.text.data(), request.text.size());
}

// In the fork: as after an exec. Ends without the destructors of what the libraries made while they
// were loaded, which take as long as most commands.
[[noreturn]] void run_program(Request& request) {
  for (int file = 0; file < standard_files; ++file) dup2(request.files[file], file);
  close_range(standard_files, ~0U, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  take_over(request.header.settings);
  words_and_variables = std::move(request.text);
  char* next = words_and_variables.data();
  const auto word = [&] {
    char* here = next;
    next += std::strlen(here) + 1;
    return here;
  };
  if (chdir(word()) != 0) fail("chdir");
  for (std::uint32_t n = 0; n < request.header.words; ++n) arguments.push_back(word());
  arguments.push_back(nullptr);
  clearenv();
  for (std::uint32_t n = 0; n < request.header.variables; ++n) putenv(word());
  const int code = program(static_cast<int>(request.header.words), arguments.data(), environ);
  std::fflush(nullptr);
  _exit(code);
}

// Beside the fork: tells the client its number and how it ended, and ends it where the client is
// gone.
void keep(int client, Request& request, pid_t child) {
  for (const int file : request.files) close(file);
  // By its number: the header of glibc 2.36 declares it for C alone.
  const int ended = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  write_all(client, &child, sizeof(child));
  pollfd events[2] = {{ended, POLLIN, 0}, {client, POLLIN | POLLRDHUP, 0}};
  while (poll(events, 2, -1) < 0 && errno == EINTR) {
  }
  if ((events[0].revents & POLLIN) == 0) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  write_all(client, &status, sizeof(status));
}

int serve(int, char**, char**) {
  const std::string path = getenv("GARONNE_FORK_SOCKET");
  const std::string unheard = path + "-";
  const sockaddr_un address = address_of(unheard.c_str());
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    fail("bind");
  if (listen(listener, SOMAXCONN) != 0) fail("listen");
  // Who sees it can connect.
  if (rename(unheard.c_str(), path.c_str()) != 0) fail("rename");
  signal(SIGCHLD, SIG_IGN);
  for (;;) {
    pollfd events[2] = {{listener, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    if (poll(events, 2, -1) < 0) continue;
    if (events[1].revents != 0) _exit(0);
    const int client = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) continue;
    if (fork() == 0) {
      signal(SIGCHLD, SIG_DFL);
      close(listener);
      Request request;
      if (!receive(client, request)) _exit(127);
      const pid_t child = fork();
      if (child == 0) run_program(request);
      keep(client, request, child);
      _exit(0);
    }
    close(client);
  }
}

}  // namespace

// What the program's entry calls once its libraries are there.
extern "C" int __libc_start_main(Main main, int argc, char** argv, void (*init)(), void (*fini)(),
                                 void (*loader_fini)(), void* stack_end) {
  program = main;
  const auto next =
      reinterpret_cast<decltype(&__libc_start_main)>(dlsym(RTLD_NEXT, "__libc_start_main"));
  return next(getenv("GARONNE_FORK_SOCKET") == nullptr ? main : serve, argc, argv, init, fini,
              loader_fini, stack_end);
}
