// SPDX-License-Identifier: MIT
// The main of tests that run under mpirun. Every rank runs every case in the same order. A failure
// is printed by the rank that saw it, at once, since that rank may never meet the others again; at
// the end of a case the ranks agree on whether anyone failed, and the exit status is that of the
// worst.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

class CollectingListener : public testing::EmptyTestEventListener {
 public:
  // Takes the printer that this rank would have used; only rank 0 keeps one.
  CollectingListener(MPI_Comm communicator, std::unique_ptr<testing::TestEventListener> printer)
      : communicator_(communicator), printer_(std::move(printer)) {
    MPI_Comm_rank(communicator_, &rank_);
    MPI_Comm_size(communicator_, &size_);
    if (rank_ != 0) printer_.reset();
  }

  void OnTestProgramStart(const testing::UnitTest& unit) override {
    if (printer_) printer_->OnTestProgramStart(unit);
  }
  void OnTestSuiteStart(const testing::TestSuite& suite) override {
    if (printer_) printer_->OnTestSuiteStart(suite);
  }
  void OnTestStart(const testing::TestInfo& info) override {
    if (printer_) printer_->OnTestStart(info);
  }

  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.skipped() && rank_ == 0) printer_->OnTestPartResult(result);
    if (!result.failed()) return;
    std::fprintf(stderr, "[rank %d/%d] %s:%d: failure\n%s\n", rank_, size_,
                 result.file_name() ? result.file_name() : "unknown file", result.line_number(),
                 result.message());
    std::fflush(stderr);
  }

  void OnTestEnd(const testing::TestInfo& info) override {
    const int failed = info.result()->Failed() ? 1 : 0;
    std::vector<int> all(static_cast<std::size_t>(size_));
    MPI_Allgather(&failed, 1, MPI_INT, all.data(), 1, MPI_INT, communicator_);
    for (int rank = 0; rank < size_; ++rank) {
      if (!all[static_cast<std::size_t>(rank)]) continue;
      any_failed_ = true;
      if (rank_ == 0) {
        std::printf("[  FAILED  ] %s.%s on rank %d of %d\n", info.test_suite_name(), info.name(),
                    rank, size_);
      }
    }
    if (printer_) printer_->OnTestEnd(info);
  }

  void OnTestSuiteEnd(const testing::TestSuite& suite) override {
    if (printer_) printer_->OnTestSuiteEnd(suite);
  }
  void OnTestProgramEnd(const testing::UnitTest& unit) override {
    if (printer_) printer_->OnTestProgramEnd(unit);
  }

  bool any_failed() const { return any_failed_; }

 private:
  MPI_Comm communicator_;
  std::unique_ptr<testing::TestEventListener> printer_;
  int rank_ = 0;
  int size_ = 1;
  bool any_failed_ = false;
};

[[noreturn]] void abort_everyone(const char* reason) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::fprintf(stderr, "[rank %d] %s\n", rank, reason);
  std::fflush(stderr);
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::abort();
}

}  // namespace

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  if (level < MPI_THREAD_MULTIPLE) abort_everyone("this MPI lacks MPI_THREAD_MULTIPLE");

  testing::InitGoogleTest(&argc, argv);
  // GoogleTest would make a failure of an exception and go on, while the other ranks wait inside a
  // collective.
  testing::GTEST_FLAG(catch_exceptions) = false;

  // Ours: what a test leaves unfinished on the world cannot be mistaken for our messages.
  MPI_Comm communicator = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &communicator);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  auto* listener = new CollectingListener(
      communicator, std::unique_ptr<testing::TestEventListener>(
                        listeners.Release(listeners.default_result_printer())));
  listeners.Append(listener);  // owns it

  int result = 0;
  try {
    result = RUN_ALL_TESTS();
  } catch (const std::exception& error) {
    abort_everyone((std::string("uncaught exception: ") + error.what()).c_str());
  } catch (...) {
    abort_everyone("uncaught exception of unknown type");
  }
  if (listener->any_failed()) result = 1;
  int worst = 0;
  MPI_Allreduce(&result, &worst, 1, MPI_INT, MPI_MAX, communicator);
  MPI_Comm_free(&communicator);
  MPI_Finalize();
  return worst;
}
