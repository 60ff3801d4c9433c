#include "data/hdf5/foreign_keeper.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <memory>

namespace garonne::data {
namespace {

constexpr int asking = 0;
constexpr int most_files = 64;
// What a damaged file makes of a process is no reason to believe it.
constexpr std::uint32_t most_message_bytes = most_answer_bytes + 64;

// False at the end of what comes.
bool read_bytes(int descriptor, void* bytes, std::size_t count) {
  auto* next = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t got = read(descriptor, next, count);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    next += got;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

bool write_bytes(int descriptor, const std::string& bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t put = send(descriptor, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    done += static_cast<std::size_t>(put);
  }
  return true;
}

void append_number(std::string& bytes, std::uint32_t number) {
  bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
}

bool read_text(int descriptor, std::string& text, std::uint32_t most) {
  std::uint32_t length = 0;
  if (!read_bytes(descriptor, &length, sizeof length) || length > most) return false;
  text.resize(length);
  return read_bytes(descriptor, text.data(), length);
}

bool write_text(int descriptor, const std::string& text) {
  std::string bytes;
  append_number(bytes, static_cast<std::uint32_t>(text.size()));
  bytes += text;
  return write_bytes(descriptor, bytes);
}

bool read_question(int descriptor, ForeignQuestion& question) {
  if (!read_bytes(descriptor, &question.kind, sizeof question.kind)) return false;
  for (std::string* text : {&question.path, &question.object, &question.attribute}) {
    if (!read_text(descriptor, *text, most_request_bytes)) return false;
  }
  return true;
}

bool write_question(int descriptor, const ForeignQuestion& question) {
  std::string bytes;
  append_number(bytes, static_cast<std::uint32_t>(question.kind));
  for (const std::string* text : {&question.path, &question.object, &question.attribute}) {
    append_number(bytes, static_cast<std::uint32_t>(text->size()));
    bytes += *text;
  }
  return write_bytes(descriptor, bytes);
}

// A process that reads files.
class Reader {
 public:
  Reader(const std::function<void()>& prepare,
         const std::function<std::string(const ForeignQuestion&)>& answer) {
    int ends[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return;
    process_ = fork();
    if (process_ == 0) {
      close(ends[0]);
      serve(ends[1], prepare, answer);
    }
    close(ends[1]);
    channel_ = ends[0];
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() {
    if (process_ > 0) kill(process_, SIGKILL);
    wait_for_end();
    if (channel_ >= 0) close(channel_);
  }

  // The bytes of its answer, or of how it ended.
  std::string ask(const ForeignQuestion& question) {
    std::string answer;
    if (process_ > 0 && write_question(channel_, question) && wait_for_answer() &&
        read_text(channel_, answer, most_message_bytes)) {
      return answer;
    }
    // Where it ended by itself this changes nothing; else it was misled to say too much.
    if (process_ > 0) kill(process_, SIGKILL);
    answer.clear();
    append_number(answer, static_cast<std::uint32_t>(ForeignState::Ended));
    append_number(answer, static_cast<std::uint32_t>(wait_for_end()));
    return answer;
  }

  // False where nobody waits for it any more.
  bool wait_for_answer() const {
    pollfd ends[2] = {{channel_, POLLIN, 0}, {asking, POLLRDHUP, 0}};
    while (poll(ends, 2, -1) < 0 && errno == EINTR) {
    }
    return ends[1].revents == 0;
  }

  bool is_there() const { return process_ > 0; }

 private:
  [[noreturn]] static void serve(int channel, const std::function<void()>& prepare,
                                 const std::function<std::string(const ForeignQuestion&)>& answer) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // Who asks is not for it to talk to.
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (nothing < 0 || dup2(nothing, asking) < 0) _exit(1);
    close(nothing);
    prepare();
    ForeignQuestion question;
    while (read_question(channel, question)) {
      if (!write_text(channel, answer(question))) _exit(1);
    }
    // Without what HDF5 and others do at an end, which damaged files may upset.
    _exit(0);
  }

  int wait_for_end() {
    int status = 0;
    if (process_ > 0) {
      while (waitpid(process_, &status, 0) < 0 && errno == EINTR) {
      }
    }
    process_ = -1;
    return status;
  }

  pid_t process_ = -1;
  int channel_ = -1;
};

}  // namespace

int keep_answering(const std::function<void()>& prepare,
                   const std::function<std::string(const ForeignQuestion&)>& answer) {
  std::unique_ptr<Reader> reader;
  std::string path;
  int files = 0;
  ForeignQuestion question;
  while (read_question(asking, question)) {
    if (question.path != path && reader) {
      if (++files < most_files) reader->ask({ForeignKind::Closing, path, "", ""});
      if (files >= most_files) reader.reset();
    }
    if (!reader || !reader->is_there()) {
      reader.reset();  // there is one at a time
      reader = std::make_unique<Reader>(prepare, answer);
      files = 0;
    }
    path = question.path;
    if (!write_bytes(asking, reader->ask(question))) return 1;
  }
  return 0;
}

}  // namespace garonne::data
