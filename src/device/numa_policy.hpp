// On which NUMA node of the host memory comes about.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace garonne::device {

// While it lives, memory that the calling thread has the system make lies on that node as long as
// there is room; without a node, or where the system refuses, nothing is changed. Then the thread's
// policy is what it was.
class NumaPolicy {
 public:
  explicit NumaPolicy(std::optional<int> node);
  ~NumaPolicy();
  NumaPolicy(const NumaPolicy&) = delete;
  NumaPolicy& operator=(const NumaPolicy&) = delete;

  // Why it is not set; empty where it is, or where there is no node to set it to.
  const std::string& refusal() const { return refusal_; }

  // The node that the calling thread's memory comes from while there is room, where it has one.
  static std::optional<int> preferred();

 private:
  bool set_ = false;
  int mode_before_ = 0;
  std::vector<unsigned long> nodes_before_;
  std::string refusal_;
};

}  // namespace garonne::device
