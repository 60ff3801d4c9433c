#include "plan/graph/minimum_cut.hpp"

#include <algorithm>

#include "base/index.hpp"

namespace garonne::plan {

void MinimumCut::add_edge(int from, int to, std::int64_t capacity) {
  edges_of_[as_index(from)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, capacity});
  edges_of_[as_index(to)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

bool MinimumCut::find_levels(int source, int sink) {
  level_.assign(edges_of_.size(), -1);
  level_[as_index(source)] = 0;
  std::vector<int> queue = {source};
  for (std::size_t q = 0; q < queue.size(); ++q) {
    for (const int e : edges_of_[as_index(queue[q])]) {
      const Edge& edge = edges_[as_index(e)];
      if (edge.capacity == 0 || level_[as_index(edge.to)] >= 0) continue;
      level_[as_index(edge.to)] = level_[as_index(queue[q])] + 1;
      queue.push_back(edge.to);
    }
  }
  return level_[as_index(sink)] >= 0;
}

std::int64_t MinimumCut::push(int node, int sink, std::int64_t limit) {
  if (node == sink) return limit;
  std::int64_t pushed = 0;
  const std::vector<int>& edges = edges_of_[as_index(node)];
  for (std::size_t& n = next_[as_index(node)]; n < edges.size(); ++n) {
    Edge& edge = edges_[as_index(edges[n])];
    if (edge.capacity == 0 || level_[as_index(edge.to)] != level_[as_index(node)] + 1) continue;
    const std::int64_t part = push(edge.to, sink, std::min(limit - pushed, edge.capacity));
    edge.capacity -= part;
    edges_[as_index(edges[n] ^ 1)].capacity += part;
    pushed += part;
    if (pushed == limit) break;
  }
  return pushed;
}

std::vector<bool> MinimumCut::solve(int source, int sink) {
  while (find_levels(source, sink)) {
    next_.assign(edges_of_.size(), 0);
    push(source, sink, unlimited);
  }
  std::vector<bool> side(edges_of_.size());
  for (std::size_t n = 0; n < side.size(); ++n) side[n] = level_[n] >= 0;
  return side;
}

}  // namespace garonne::plan
