#include "device/numa_policy.hpp"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <system_error>

namespace garonne::device {
namespace {

constexpr std::size_t word_bits = sizeof(unsigned long) * CHAR_BIT;
constexpr std::size_t most_nodes = 1024;  // of kernels: a mask that is shorter is refused
using NodeMask = std::array<unsigned long, most_nodes / word_bits>;

// The system reads one bit less than it is told.
constexpr unsigned long mask_bits = most_nodes + 1;

// No library of the system has these calls.
long get_policy(int& mode, NodeMask& nodes) {
  return syscall(SYS_get_mempolicy, &mode, nodes.data(), mask_bits - 1, nullptr, 0UL);
}

long set_policy(int mode, const unsigned long* nodes) {
  return syscall(SYS_set_mempolicy, mode, nodes, nodes == nullptr ? 0UL : mask_bits);
}

}  // namespace

NumaPolicy::NumaPolicy(std::optional<int> node) {
  if (!node) return;
  NodeMask before{};
  NodeMask wanted{};
  const auto place = static_cast<std::size_t>(*node);
  if (place >= most_nodes) {
    refusal_ = "there is no such node";
    return;
  }
  wanted[place / word_bits] = 1UL << (place % word_bits);
  if (get_policy(mode_before_, before) != 0 || set_policy(MPOL_PREFERRED, wanted.data()) != 0) {
    refusal_ = std::generic_category().message(errno);
    return;
  }
  nodes_before_.assign(before.begin(), before.end());
  set_ = true;
}

NumaPolicy::~NumaPolicy() {
  if (!set_) return;
  // The default has no nodes.
  const bool has_nodes = mode_before_ != MPOL_DEFAULT;
  static_cast<void>(set_policy(mode_before_, has_nodes ? nodes_before_.data() : nullptr));
}

std::optional<int> NumaPolicy::preferred() {
  int mode = 0;
  NodeMask nodes{};
  if (get_policy(mode, nodes) != 0 || mode != MPOL_PREFERRED) return std::nullopt;
  for (std::size_t word = 0; word < nodes.size(); ++word) {
    if (nodes[word] != 0) return static_cast<int>(word * word_bits) + std::countr_zero(nodes[word]);
  }
  return std::nullopt;
}

}  // namespace garonne::device
