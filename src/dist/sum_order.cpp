#include "dist/sum_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "base/error.hpp"
#include "dist/ordered_sum.hpp"

namespace garonne::dist {

SumOrder flat_order(int members) {
  std::vector<int> all(static_cast<std::size_t>(members));
  std::iota(all.begin(), all.end(), 0);
  return {{std::move(all)}};
}

SumOrder order_over_nodes(const std::vector<int>& nodes) {
  SumOrder order;
  std::vector<int> numbers;
  for (std::size_t member = 0; member < nodes.size(); ++member) {
    const auto place = std::find(numbers.begin(), numbers.end(), nodes[member]) - numbers.begin();
    if (place == std::ssize(numbers)) {
      numbers.push_back(nodes[member]);
      order.nodes.emplace_back();
    }
    order.nodes[static_cast<std::size_t>(place)].push_back(static_cast<int>(member));
  }
  const bool alike = std::ranges::all_of(order.nodes, [&](const std::vector<int>& node) {
    return node.size() == order.nodes.front().size() && node.size() > 1;
  });
  return alike && order.two_levels() ? order : flat_order(static_cast<int>(nodes.size()));
}

std::string describe(const SumOrder& order) {
  if (!order.two_levels()) return "in rank order";
  return fmt::format("within each of {} nodes over {} ranks in rank order, then over the nodes",
                     order.nodes.size(), order.nodes.front().size());
}

void sum_in_order(void* result, const SumOrder& order, std::span<const void* const> terms,
                  std::int64_t elements, ScalarType type) {
  std::size_t members = 0;
  for (const std::vector<int>& node : order.nodes) members += node.size();
  expect(members == terms.size(), "a sum has one term of each member");
  if (!order.two_levels()) return sum_in_order(result, terms, elements, type);
  const auto bytes = static_cast<std::size_t>(elements * scalar_bytes(type));
  std::vector<std::vector<std::byte>> sums;
  std::vector<const void*> of_nodes;
  for (const std::vector<int>& node : order.nodes) {
    std::vector<const void*> of_node;
    for (const int member : node) of_node.push_back(terms[static_cast<std::size_t>(member)]);
    sums.emplace_back(bytes);
    sum_in_order(sums.back().data(), of_node, elements, type);
    of_nodes.push_back(sums.back().data());
  }
  sum_in_order(result, of_nodes, elements, type);
}

}  // namespace garonne::dist
