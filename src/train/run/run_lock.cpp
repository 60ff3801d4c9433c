#include "train/run/run_lock.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <sstream>

#include "base/awake_time.hpp"
#include "base/blocked_signals.hpp"
#include "base/error.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// The namespace of processes outside of all containers has this number on every Linux.
constexpr const char* outermost_namespace = "pid:[4026531836]";
constexpr std::size_t most_mount_bytes = 65536;

// A small file of the kernel, without the end of its line; empty where it cannot be read.
std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string environment_text(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string random_token() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

// What /proc says of a process.
struct ProcessFacts {
  bool ended = false;  // but not yet waited for
  std::int64_t start = 0;
};

std::optional<ProcessFacts> facts_of(std::int64_t process) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", process));
  // The name, in brackets, may hold anything.
  const auto name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  std::string state;
  fields >> state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  ProcessFacts facts;
  fields >> facts.start;
  if (!fields) return std::nullopt;
  facts.ended = state == "Z" || state == "X" || state == "x";
  return facts;
}

nlohmann::ordered_json to_json(const LockHolder& holder) {
  return {{"format", "garonne.lock"},
          {"version", 1},
          {"host", holder.host},
          {"process", holder.process},
          {"job", holder.job},
          {"since", holder.since},
          {"machine", holder.machine},
          {"boot", holder.boot},
          {"process_namespace", holder.process_namespace},
          {"process_start", holder.process_start},
          {"cluster", holder.cluster},
          {"restarts", holder.restarts},
          {"token", holder.token}};
}

// Nothing where it is no text of ours, as of a file that is being written.
std::optional<LockHolder> holder_of(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto word = [&](const char* key) {
    return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
  };
  const auto number = [&](const char* key) {
    return json.contains(key) && json[key].is_number_integer() ? json[key].get<std::int64_t>() : 0;
  };
  if (!json.is_object() || word("format") != "garonne.lock" || word("token").empty() ||
      number("process") < 1 || number("process") > 1'000'000'000)
    return std::nullopt;
  LockHolder holder;
  holder.host = word("host");
  holder.machine = word("machine");
  holder.boot = word("boot");
  holder.process_namespace = word("process_namespace");
  holder.process = number("process");
  holder.process_start = number("process_start");
  holder.cluster = word("cluster");
  holder.job = word("job");
  holder.restarts = number("restarts");
  holder.since = word("since");
  holder.token = word("token");
  return holder;
}

bool no_such_links(int reason) {
  return reason == EPERM || reason == ENOSYS || reason == EOPNOTSUPP || reason == ENOTSUP ||
         reason == EMLINK || reason == EINVAL;
}

bool write_all(int descriptor, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::write(descriptor, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    done += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace

std::string LockHolder::text() const {
  return fmt::format("process {} on {}{}{}", process, host, job.empty() ? "" : ", job " + job,
                     since.empty() ? "" : ", since " + since);
}

LockHolder this_holder() {
  LockHolder here;
  std::array<char, 256> name{};
  here.host = gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
  here.machine = first_line("/etc/machine-id");
  here.boot = first_line("/proc/sys/kernel/random/boot_id");
  std::array<char, 256> link{};
  if (::readlink("/proc/self/ns/pid", link.data(), link.size() - 1) > 0)
    here.process_namespace = link.data();
  here.process = ::getpid();
  if (const auto facts = facts_of(here.process)) here.process_start = facts->start;
  here.cluster = environment_text("SLURM_CLUSTER_NAME");
  here.job = environment_text("SLURM_JOB_ID");
  here.restarts = std::strtoll(environment_text("SLURM_RESTART_COUNT").c_str(), nullptr, 10);
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  here.since = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", utc);
  here.token = random_token();
  return here;
}

HolderState state_of_holder(const LockHolder& holder, const LockHolder& here) {
  const bool same_boot = !holder.boot.empty() && holder.boot == here.boot;
  if (same_boot && !holder.process_namespace.empty() &&
      holder.process_namespace == here.process_namespace) {
    if (::kill(static_cast<pid_t>(holder.process), 0) != 0 && errno == ESRCH)
      return HolderState::Gone;
    const auto facts = facts_of(holder.process);
    // Processes of other users may be hidden; then it is enough that there is one.
    if (!facts) return HolderState::Running;
    const bool another = holder.process_start != 0 && facts->start != holder.process_start;
    return facts->ended || another ? HolderState::Gone : HolderState::Running;
  }
  // Slurm starts a job again only when its former processes have ended.
  if (!holder.job.empty() && holder.job == here.job && holder.cluster == here.cluster &&
      here.restarts > holder.restarts)
    return HolderState::Gone;
  // Containers of one image may share names on several machines.
  const bool outside_containers = holder.process_namespace == outermost_namespace &&
                                  here.process_namespace == outermost_namespace;
  if (outside_containers && holder.host == here.host && !holder.machine.empty() &&
      holder.machine == here.machine && !holder.boot.empty() && !here.boot.empty() && !same_boot)
    return HolderState::Gone;
  return HolderState::Unknown;
}

struct RunLock::Seen {
  std::string text;
  std::int64_t seconds = 0;  // of the last touch
  std::int64_t nanoseconds = 0;

  // Nothing where there is no file.
  static std::optional<Seen> at(const std::string& path) {
    // Opened anew each time: file systems of networks are fresh at opening only.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
      if (errno == ENOENT || errno == ESTALE) return std::nullopt;
      throw IoError(path, fmt::format("cannot be read: {}", std::strerror(errno)));
    }
    Seen seen;
    struct stat status {};
    bool readable = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
    std::array<char, 4096> part{};
    while (readable && seen.text.size() < most_mount_bytes) {
      const ssize_t count = ::read(descriptor, part.data(), part.size());
      if (count < 0 && errno == EINTR) continue;
      readable = count >= 0;
      if (count <= 0) break;
      seen.text.append(part.data(), static_cast<std::size_t>(count));
    }
    const int reason = errno;
    ::close(descriptor);
    if (!readable && reason == ESTALE) return std::nullopt;
    if (!readable) throw IoError(path, "is no regular file that can be read; remove it");
    seen.seconds = status.st_mtim.tv_sec;
    seen.nanoseconds = status.st_mtim.tv_nsec;
    return seen;
  }

  bool operator==(const Seen&) const = default;
};

std::optional<FoundLock> RunLock::find(const std::string& run_directory) {
  const auto seen = Seen::at(run_directory + "/lock");
  if (!seen) return std::nullopt;
  const auto holder = holder_of(seen->text);
  if (!holder) return FoundLock{};
  return FoundLock{*holder, state_of_holder(*holder, this_holder())};
}

RunLock::RunLock(const std::string& run_directory, std::function<void(const std::string&)> note,
                 const LockTimes& times)
    : folder_(run_directory),
      path_(run_directory + "/lock"),
      note_(std::move(note)),
      times_(times),
      here_(this_holder()),
      text_(to_json(here_).dump(1) + "\n") {}

RunLock::~RunLock() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
  remove();
  if (descriptor_ >= 0) ::close(descriptor_);
}

void RunLock::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!gone_) make_folder();
  }
  do {
    while (!make_unless_gone()) judge();
    // Another that judged the same lock may have moved this one by mistake.
    if (took_over_) std::this_thread::sleep_for(times_.settle);
  } while (took_over_ && !gone_ && !in_place());
  looked_ = Clock::now();
  thread_ = std::thread([this] { give_signs_of_life(); });
}

// In one go, so that nothing is made after let_go().
bool RunLock::make_unless_gone() {
  const std::lock_guard lock(mutex_);
  return gone_ || make_file();
}

void RunLock::remove() noexcept {
  try {
    if (descriptor_ >= 0 && in_place()) ::unlink(path_.c_str());
  } catch (const Error&) {
    // What cannot be read is left for the next start to judge.
  }
  for (auto folder = made_folders_.rbegin(); folder != made_folders_.rend(); ++folder)
    ::rmdir(folder->c_str());
}

void RunLock::make_folder() {
  std::vector<std::string> missing;
  std::error_code error;
  for (fs::path folder = fs::path(folder_).lexically_normal();
       !folder.empty() && !fs::exists(fs::symlink_status(folder, error));
       folder = folder.parent_path()) {
    missing.push_back(folder.string());
    if (folder == folder.parent_path()) break;
  }
  std::reverse(missing.begin(), missing.end());
  fs::create_directories(folder_, error);
  if (error) throw IoError(folder_, "cannot be made: " + error.message());
  made_folders_ = std::move(missing);
}

// False where there is a lock already. The file is written under a name of its own and linked, so
// that it is there with its text at once; linking fails where the name is taken on every file
// system that has links.
bool RunLock::make_file() {
  const std::string own = fmt::format("{}/.lock-{}-{}", folder_, here_.process, random_token());
  const int descriptor =
      ::open(own.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    unwritable_ = errno == EROFS || errno == EACCES || errno == EPERM;
    if (errno == ENOENT && descriptor_ >= 0) {
      throw IoError(folder_,
                    "has gone while the run worked in it: it was renamed, removed or unmounted. "
                    "Nothing more is written; put it back, and the same command goes on");
    }
    throw IoError(path_, fmt::format("the lock of the run directory cannot be written: {}",
                                     std::strerror(errno)));
  }
  int reason = write_all(descriptor, text_) ? 0 : errno;
  bool made = false;
  bool by_name = false;  // without links, the name itself has to do
  if (reason == 0) {
    made = ::link(own.c_str(), path_.c_str()) == 0;
    if (!made) {
      reason = errno;
      by_name = no_such_links(reason);
      // The answer of a server may have been lost.
      struct stat status {};
      made = ::fstat(descriptor, &status) == 0 && status.st_nlink == 2;
    }
  }
  ::unlink(own.c_str());
  if (made) {
    if (descriptor_ >= 0) ::close(descriptor_);
    descriptor_ = descriptor;
    return true;
  }
  ::close(descriptor);
  if (by_name) {
    const int named =
        ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    reason = named < 0 ? errno : 0;
    if (named >= 0) {
      if (write_all(named, text_)) {
        if (descriptor_ >= 0) ::close(descriptor_);
        descriptor_ = named;
        // Nor can one that was moved by mistake be put back without risk to another.
        took_over_ = true;
        return true;
      }
      reason = errno;
      ::close(named);
      ::unlink(path_.c_str());
    }
  }
  if (reason == EEXIST) return false;
  throw IoError(path_, fmt::format("the lock of the run directory cannot be written: {}",
                                   std::strerror(reason)));
}

bool RunLock::in_place() const {
  const auto seen = Seen::at(path_);
  return seen && seen->text == text_;
}

void RunLock::expect_own() const {
  const auto seen = Seen::at(path_);
  if (seen && seen->text != text_)
    throw IoError(folder_, "is another run's by now, so nothing is written there");
}

// Returns where it is worth another try; throws where somebody works in the folder.
void RunLock::judge() {
  const auto seen = Seen::at(path_);
  if (!seen) return;
  const auto holder = holder_of(seen->text);
  switch (holder ? state_of_holder(*holder, here_) : HolderState::Unknown) {
    case HolderState::Running:
      throw IoError(path_, fmt::format("another run works in this directory: {}. Stop it or wait "
                                       "for its end, or give another run.directory",
                                       holder->text()));
    case HolderState::Unknown:
      return watch(*seen);
    case HolderState::Gone:
      note_(fmt::format("the lock of {}, which has ended, is taken over", holder->text()));
      return take_away(*seen);
  }
}

void RunLock::watch(const Seen& seen) {
  const auto holder = holder_of(seen.text);
  const std::string whose = holder ? holder->text() : "somebody whom its text does not tell";
  note_(
      fmt::format("{} is the lock of {}; whether that lives cannot be asked from here, so the "
                  "file is watched for {:.0f} s",
                  path_, whose, std::chrono::duration<double>(times_.watch).count()));
  AwakeTime watched;
  while (watched.passed() < times_.watch) {
    std::this_thread::sleep_for(times_.sign_of_life / 10);
    const auto now = Seen::at(path_);
    if (!now) return;
    if (*now == seen) continue;
    // A text that came meanwhile is somebody who was quicker.
    if (now->text != seen.text) return;
    throw IoError(path_, fmt::format("another run works in this directory: {}. Stop it or wait for "
                                     "its end, or give another run.directory. If it has surely "
                                     "ended, remove this file",
                                     whose));
  }
  note_(fmt::format("the lock of {}, which gave no sign of life, is taken over", whose));
  take_away(seen);
}

// Renaming can succeed for one of several that try, and what was renamed can be looked at.
void RunLock::take_away(const Seen& seen) {
  const auto still = Seen::at(path_);
  if (!still || still->text != seen.text) return;
  const std::string away = fmt::format("{}/.lock-gone-{}", folder_, random_token());
  if (::rename(path_.c_str(), away.c_str()) != 0) {
    if (errno == ENOENT) return;
    throw IoError(path_,
                  fmt::format("is left over and cannot be removed: {}", std::strerror(errno)));
  }
  took_over_ = true;
  const auto moved = Seen::at(away);
  // Somebody was quicker, and this is their lock. Where the name is taken by now they find out by
  // themselves.
  if (moved && moved->text != seen.text && ::link(away.c_str(), path_.c_str()) != 0 &&
      errno != EEXIST)
    ::rename(away.c_str(), path_.c_str());
  ::unlink(away.c_str());
}

void RunLock::check() {
  if (Clock::now() - looked_ >= std::chrono::seconds(1)) check_now();
}

void RunLock::check_now() {
  looked_ = Clock::now();
  const auto seen = Seen::at(path_);
  if (seen && seen->text == text_) return;
  const std::lock_guard lock(mutex_);
  if (!seen && (gone_ || make_file())) return;
  lost_ = true;
  const auto holder = seen ? holder_of(seen->text) : std::nullopt;
  throw IoError(path_, fmt::format("this run lost its lock to {}: it gave no sign of life for too "
                                   "long, or the file was removed. Nothing more is written",
                                   holder ? holder->text() : "another"));
}

void RunLock::let_go() noexcept {
  const std::lock_guard lock(mutex_);
  gone_ = true;
  remove();
}

void RunLock::give_signs_of_life() {
  block_all_signals();
  std::unique_lock lock(mutex_);
  // By its descriptor: a file that others put in its place is not touched.
  while (!stopped_.wait_for(lock, times_.sign_of_life, [&] { return stopping_; }))
    ::futimens(descriptor_, nullptr);
}

}  // namespace garonne::train
