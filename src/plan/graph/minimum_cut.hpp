// The minimum cut of a directed graph with integer capacities (Dinic's algorithm).
#pragma once

#include <cstdint>
#include <vector>

namespace garonne::plan {

class MinimumCut {
 public:
  static constexpr std::int64_t unlimited = std::int64_t{1} << 60;

  explicit MinimumCut(int nodes) : edges_of_(static_cast<std::size_t>(nodes)) {}

  void add_edge(int from, int to, std::int64_t capacity);
  // Once only. By node: whether it is on the source's side of a minimum cut.
  std::vector<bool> solve(int source, int sink);

 private:
  struct Edge {
    int to = 0;
    std::int64_t capacity = 0;
  };
  bool find_levels(int source, int sink);
  std::int64_t push(int node, int sink, std::int64_t limit);

  std::vector<Edge> edges_;  // 2k and 2k + 1 are each other's reverse
  std::vector<std::vector<int>> edges_of_;
  std::vector<int> level_;
  std::vector<std::size_t> next_;
};

}  // namespace garonne::plan
