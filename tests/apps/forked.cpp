// forked SOCKET PROGRAM [ARGUMENT ...]: runs the program in a fork of the one that waits at the
// socket (fork_server.cpp), in the place of an exec: with this process's files, folder, variables
// and limits. Passes signals on, and ends as it does.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "fork_request.hpp"

using namespace garonne::forks;

namespace {

int connect_to(const char* path) {
  const sockaddr_un address = address_of(path);
  const int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    fail(path);
  return server;
}

void ask(int server, char** words) {
  Header header;
  header.settings = settings_here();
  std::string text;
  const auto add = [&](const char* word) { text.append(word, std::strlen(word) + 1); };
  char* folder = getcwd(nullptr, 0);
  if (folder == nullptr) fail("getcwd");
  add(folder);
  for (; words[header.words] != nullptr; ++header.words) add(words[header.words]);
  for (; environ[header.variables] != nullptr; ++header.variables) add(environ[header.variables]);
  header.bytes = text.size();
  const int files[standard_files] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  iovec from = {&header, sizeof(header)};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(files))] = {};
  msghdr message = {};
  message.msg_iov = &from;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof(room);
  cmsghdr* with = CMSG_FIRSTHDR(&message);
  with->cmsg_level = SOL_SOCKET;
  with->cmsg_type = SCM_RIGHTS;
  with->cmsg_len = CMSG_LEN(sizeof(files));
  std::memcpy(CMSG_DATA(with), files, sizeof(files));
  if (sendmsg(server, &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(header)))
    fail("sendmsg");
  if (!write_all(server, text.data(), text.size())) fail("send");
}

[[noreturn]] void end_as(int status) {
  if (WIFEXITED(status)) _exit(WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  const rlimit no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  signal(number, SIG_DFL);
  sigset_t all;
  sigemptyset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  raise(number);
  _exit(128 + number);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: forked SOCKET PROGRAM [ARGUMENT ...]\n");
    return 2;
  }
  sigset_t passed;
  sigemptyset(&passed);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGCONT})
    sigaddset(&passed, number);
  sigprocmask(SIG_BLOCK, &passed, nullptr);
  const int signals = signalfd(-1, &passed, SFD_CLOEXEC);
  const int server = connect_to(argv[1]);
  ask(server, argv + 2);
  pid_t child = 0;
  if (!read_all(server, &child, sizeof(child))) fail("the program that forks is gone");
  for (;;) {
    pollfd events[2] = {{server, POLLIN, 0}, {signals, POLLIN, 0}};
    if (poll(events, 2, -1) < 0) continue;
    if (events[1].revents != 0) {
      signalfd_siginfo one;
      if (read_all(signals, &one, sizeof(one))) kill(child, static_cast<int>(one.ssi_signo));
    }
    if (events[0].revents == 0) continue;
    int status = 0;
    if (!read_all(server, &status, sizeof(status))) fail("the program that forks is gone");
    end_as(status);
  }
}
