// Replay's account of passes that are divided at their collective: each part comes after the one
// before it, on the storage that it left.
#pragma once

#include <map>

#include "plan/program/program.hpp"

namespace garonne::plan {

class DividedPasses {
 public:
  // Called for each instruction in order, whose buffers are in the table. Throws ReplayError where
  // it is no part that comes next, or is a pass that meets other ranks undivided.
  void check(int number, const Instruction& instruction);
  // At the end of the list.
  void finish() const;

 private:
  struct Pass {
    int number = -1;  // of its first part
    int node = -1;
    int micro_batch = -1;
    bool forward = true;
    int output_gradient = -1;  // that a backward is given
    bool met = false;          // the collective has been
  };

  [[noreturn]] void fail(const char* reason) const;
  void says(bool holds, const char* reason) const {
    if (!holds) fail(reason);
  }
  bool reads(int buffer) const;
  bool writes(int buffer) const;
  Pass& pass_of();
  void begin();
  void meet();
  void finish_forward(const Pass& pass) const;
  void finish_backward(const Pass& pass) const;

  std::map<int, Pass> open_;  // by what they exchange
  int number_ = -1;
  const Instruction* instruction_ = nullptr;
};

}  // namespace garonne::plan
