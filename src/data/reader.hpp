// The one thread of the process that reads HDF5 while training computes.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace garonne::data {

// Something a Reader feeds. All but the constructor and destructor is called on the reader's
// thread.
class ReaderTask {
 public:
  virtual ~ReaderTask() = default;
  // Whether there is room for another piece of work. Called with the reader's lock held: must not
  // block.
  virtual bool ready() = 0;
  // One piece of work, without the reader's lock. Must not throw.
  virtual void work() = 0;
};

// Owns the thread; several streams share it and are served in turn. Destroy after its streams and
// before MPI_Finalize. All members may be called from any thread but its own.
class Reader {
 public:
  Reader();
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // Runs `work` on the thread, waits, and rethrows what it threw.
  void call(const std::function<void()>& work);
  void add(std::shared_ptr<ReaderTask> task);
  // Returns when the task will not be called any more: after the piece of work in progress, if any.
  // The reader's reference to the task ends on the thread.
  void remove(const std::shared_ptr<ReaderTask>& task);
  // A task may have become ready.
  void wake();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<ReaderTask>> tasks_;
  std::vector<std::function<void()>> calls_;
  std::size_t turn_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace garonne::data
