#include "train/checkpoint/background_writer.hpp"

#include <utility>

#include "base/blocked_signals.hpp"
#include "base/error.hpp"

namespace garonne::train {

void BackgroundWriter::begin(const std::string& partial, int rank,
                             std::vector<RankTensor> tensors) {
  expect(state_ == State::Idle, "one checkpoint is written at a time");
  state_ = State::Writing;
  thread_ = std::thread([this, partial, rank, tensors = std::move(tensors)] {
    block_all_signals();
    try {
      written_ = write_rank_tensors(partial, rank, tensors, [&] {
        if (abandoned_) throw IoError(partial, "is left half-written, since the run ends");
      });
      state_ = State::Written;
    } catch (...) {
      failure_ = std::current_exception();
      state_ = State::Failed;
    }
  });
}

void BackgroundWriter::wait() {
  if (thread_.joinable()) thread_.join();
}

void BackgroundWriter::leave() {
  abandon();
  wait();
}

RankFile BackgroundWriter::take() {
  expect(state_ != State::Idle, "nothing was begun to be written");
  wait();
  state_ = State::Idle;
  if (const std::exception_ptr failure = std::exchange(failure_, nullptr))
    std::rethrow_exception(failure);
  return std::exchange(written_, {});
}

}  // namespace garonne::train
