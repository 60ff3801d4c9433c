// What lets the loop of steps pass, or holds it where a state can be saved. A step changes the
// state of the model only from its first update on, so before that it can be abandoned.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace garonne::train {

// One thread runs steps and passes through, another one closes and freezes.
class StepGate {
 public:
  // `step`: the last one that is finished.
  explicit StepGate(std::int64_t step) : entered_(step), finished_(step) {}

  // By the thread that runs steps. Before each instruction of a step; returns when it may run,
  // which is never after freeze().
  void pass(std::int64_t step, bool updates);
  // After the last instruction.
  void finish(std::int64_t step);
  // The step under way ends with an error; no other one follows.
  void give_up();
  // For what the world outside sees of the run, as rows and checkpoints: held while such a change
  // is made.
  [[nodiscard]] std::unique_lock<std::mutex> change_outside() { return std::unique_lock(outside_); }

  // By the other thread. From now on no step begins to update; returns the last one that has begun.
  std::int64_t close();
  // Lets updates of steps up to this one pass.
  void allow(std::int64_t step);
  // Waits until the step is finished, then holds the runner before its next instruction and before
  // its next change outside, for good. False, and holds nobody, where the runner gave it up.
  [[nodiscard]] bool freeze_after(std::int64_t step);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::int64_t entered_;
  std::int64_t finished_;
  bool closed_ = false;
  bool given_up_ = false;
  std::int64_t allowed_ = 0;
  std::atomic<bool> frozen_{false};
  std::mutex outside_;
};

}  // namespace garonne::train
