// Of replay: that what the executor is told to do with buffers is what the instruction says to read
// and write, and that every gradient that is summed and applied is the one of its parameter.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "plan/program/divided_passes.hpp"
#include "plan/program/program.hpp"
#include "plan/program/trained_contents.hpp"

namespace garonne::plan {

// One pass over a Program; every failure is a ReplayError.
class RoleCheck {
 public:
  explicit RoleCheck(const Program& program);

  // The instructions, in order.
  void check(int number, const Instruction& instruction);
  // After the last.
  void finish() const;

 private:
  // Elements of a parameter's gradient that lie somewhere in a buffer.
  struct Content {
    int parameter = -1;
    std::int64_t first = 0;  // of the gradient
    std::int64_t elements = 0;

    bool operator==(const Content&) const = default;
  };
  using Contents = std::map<std::int64_t, Content>;  // by first element in the buffer

  [[noreturn]] void fail(const std::string& reason) const;
  // Where there is something wrong.
  void refuse(const std::string& wrong) const {
    if (!wrong.empty()) fail(wrong);
  }
  // `reason`: text, or what makes it, which is asked for it only where it does not hold.
  void expect_role(bool holds, const char* reason) const {
    if (!holds) fail(reason);
  }
  template <std::invocable Reason>
  void expect_role(bool holds, const Reason& reason) const {
    if (!holds) fail(reason());
  }
  const std::string& name(int buffer) const;
  bool reads(int buffer) const;
  bool writes(int buffer) const;
  void known(int buffer, const char* role) const;
  void read_range(const Range& range, const char* role) const;
  void written_range(const Range& range, const char* role) const;
  void inside(const Range& range, const char* role) const;
  void check_placements() const;
  void check_gradient(std::size_t input) const;
  void check_targets();
  void check_part();
  void check_copy();
  void check_pieces();
  void check_update_on_host();
  void update_piece(int number);
  void sum_tensor(int number) const;
  void expect_sums_of(int number, std::size_t rounds) const;
  void check_made();
  void check_sums();
  void check_scalars();
  bool holds(const Range& range, int parameter, std::int64_t first) const;
  Contents contents_of(const Range& range) const;
  void put(const Range& range, const Contents& contents, bool accumulate);
  void check_tables() const;

  const Program& program_;
  int number_ = -1;
  const Instruction* instruction_ = nullptr;
  DividedPasses passes_;
  TrainedContents trained_;
  std::map<int, Contents> contents_;  // by buffer of gradients
  std::set<int> reduced_;             // buffers of gradients: summed over the data group
  std::set<int> tensor_sums_;         // buffers of sums of whole parameters
  int sums_ = -1;                     // the buffer of loss and squares
  int norm_ = -1;
  std::set<int> norms_on_host_;  // copies of it
  bool reported_ = false;        // both, to whoever runs the step
  int last_summed_ = -1;         // piece
  std::vector<int> summed_;      // by piece: how often
  std::vector<int> updated_;
};

}  // namespace garonne::plan
