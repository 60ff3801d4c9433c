// The lock of a run directory: one run at a time writes into it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace garonne::train {

// Who holds a lock, as its file says ("garonne.lock", docs/formats.md). Texts are empty where they
// are not known.
struct LockHolder {
  std::string host;
  std::string machine;            // of the operating system that is installed there
  std::string boot;               // of the running kernel
  std::string process_namespace;  // in which `process` is a number
  std::int64_t process = 0;
  std::int64_t process_start = 0;  // clock ticks after the boot
  std::string cluster;             // Slurm's
  std::string job;
  std::int64_t restarts = 0;  // of the job
  std::string since;          // UTC
  std::string token;          // of this lock and no other

  // "process 7 on node07, job 99, since 2026-01-31T08:00:00Z".
  std::string text() const;
};

// This process, with a token of its own.
LockHolder this_holder();

enum class HolderState { Running, Gone, Unknown };

// What can be said of a holder without watching it. Unknown: it is on another machine, or where its
// processes cannot be seen.
HolderState state_of_holder(const LockHolder& holder, const LockHolder& here);

// Of a lock that is there. A text that names nobody is of an unknown holder.
struct FoundLock {
  LockHolder holder;
  HolderState state = HolderState::Unknown;
};

struct LockTimes {
  std::chrono::milliseconds sign_of_life{10'000};  // the holder touches the file so often
  std::chrono::milliseconds watch{90'000};  // a file that is not touched so long is left over
  std::chrono::milliseconds settle{100};    // between a take-over and the look whether it lasted
};

// Holds `<run directory>/lock` from take() to destruction. Needs no locks of the file system: the
// file appears with its text by one call, and only one process can make it. A thread touches it, so
// that those on other machines see that the run lives.
class RunLock {
 public:
  RunLock(const std::string& run_directory, std::function<void(const std::string&)> note,
          const LockTimes& times = {});
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;
  // Removes the file, and folders that were made for it and hold nothing else.
  ~RunLock();

  // What the lock of a run directory says; nothing where there is none. Throws IoError where it
  // cannot be read.
  static std::optional<FoundLock> find(const std::string& run_directory);

  // Makes the folder where it is missing. A lock whose holder is gone for sure is taken over, which
  // `note` hears; of a holder that cannot be judged the file is watched. Throws IoError that names
  // the holder, or where the file cannot be made. To be called once.
  void take();

  // Whether take() has thrown because the folder takes no files: its disk is read-only, or its
  // rights are.
  bool unwritable() const { return unwritable_; }

  // To be called before writing into the folder; looks at the file at most once a second. Throws
  // IoError where somebody else holds the lock by now, as after this process was stopped for longer
  // than others watch, and where the folder has gone. A file that was removed is made again.
  void check();
  // The same, and looks now.
  void check_now();
  // Whether check() has found that somebody else holds the lock.
  bool lost() const { return lost_; }
  // Throws IoError where somebody else holds the lock by now. Changes nothing, so that a process
  // which has only a copy of the memory of this one's may ask.
  void expect_own() const;

  // Removes what the destructor would and makes nothing more, for a process that is about to end
  // without destroying anything. Any thread, also while another one is in take(), which then takes
  // nothing.
  void let_go() noexcept;

 private:
  struct Seen;

  void make_folder();
  bool make_unless_gone();
  bool make_file();
  bool in_place() const;
  void judge();
  void watch(const Seen& seen);
  void take_away(const Seen& seen);
  void give_signs_of_life();
  void remove() noexcept;

  std::string folder_;
  std::string path_;
  std::function<void(const std::string&)> note_;
  LockTimes times_;
  LockHolder here_;
  std::string text_;  // of the file
  std::vector<std::string> made_folders_;
  int descriptor_ = -1;
  bool took_over_ = false;
  bool unwritable_ = false;
  bool lost_ = false;
  std::chrono::steady_clock::time_point looked_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ = false;
  std::atomic<bool> gone_{false};
  std::thread thread_;
};

}  // namespace garonne::train
