// The canonical order in which the members of a group are summed: in one level, or in two where
// nodes are far from each other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dist/transport.hpp"

namespace garonne::dist {

// A function of who is on which node, and of nothing else: neither of sizes nor of timing.
// One node: ((g0 + g1) + g2) + ... over its members. Several: that within each node, then
// ((n0 + n1) + n2) + ... over what the nodes came to. Where sums travel in BFloat16 that is
// rounded, too, and so is on a device what the first 64 members came to where there are more.
struct SumOrder {
  // Indices into the group; every member once. Ascending within a node, and nodes by their first
  // member.
  std::vector<std::vector<int>> nodes;

  bool two_levels() const { return nodes.size() > 1; }
};

// In member order: one node of all.
SumOrder flat_order(int members);

// `nodes`: of each member, any number that is the same for members of one node. Two levels where
// there are several nodes with equally many members, two at least, of the group; else flat: with
// one member on each node the two are the same, and with unequal ones two levels would need more
// staging than all_reduce_staging_bytes says.
SumOrder order_over_nodes(const std::vector<int>& nodes);

// "in rank order", "within each of 2 nodes over 4 ranks in rank order, then over the nodes": what
// is printed and recorded.
std::string describe(const SumOrder& order);

// On the host: result[elements] = the sum of terms[elements each], one for each member, in the
// order. One of the terms may be `result` itself; otherwise the buffers do not overlap.
void sum_in_order(void* result, const SumOrder& order, std::span<const void* const> terms,
                  std::int64_t elements, ScalarType type);

}  // namespace garonne::dist
