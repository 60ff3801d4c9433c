#include "dist/reduction.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/error.hpp"

namespace garonne::dist {
namespace {

struct Place {
  std::size_t node = 0;
  std::size_t inside = 0;  // of the node
};

Place place_of(const SumOrder& order, int member) {
  for (std::size_t node = 0; node < order.nodes.size(); ++node) {
    const std::vector<int>& members = order.nodes[node];
    const auto found = std::ranges::find(members, member);
    if (found != members.end()) return {node, static_cast<std::size_t>(found - members.begin())};
  }
  throw InternalError("a member that is in no node");
}

}  // namespace

std::vector<ReductionStep> reduction_of(const SumOrder& order, int member) {
  const Place mine = place_of(order, member);
  const std::vector<int>& node = order.nodes[mine.node];
  int slots = 0;

  // Each member of a node sums up what the node has for the members in its place of all nodes.
  ReductionStep within;
  std::vector<PiecePlace> partial(order.nodes.size());
  for (std::size_t other = 0; other < order.nodes.size(); ++other) {
    for (std::size_t inside = 0; inside < node.size(); ++inside) {
      if (inside == mine.inside) continue;
      within.sends.push_back({node[inside], {order.nodes[other][inside]}});
    }
    const int piece = order.nodes[other][mine.inside];
    PieceSum sum;
    for (const int peer : node) {
      PiecePlace place{piece};
      if (peer != member) {
        place.slot = slots++;
        within.receives.push_back({peer, place});
      }
      sum.terms.push_back(place);
    }
    // The other pieces of the data keep what they hold.
    sum.result = piece == member ? PiecePlace{piece} : sum.terms[mine.inside == 0 ? 1 : 0];
    partial[other] = sum.result;
    within.sums.push_back(std::move(sum));
  }
  std::vector<ReductionStep> steps{std::move(within)};
  if (!order.two_levels()) return steps;

  ReductionStep between;
  PieceSum sum{{member}, {}};
  for (std::size_t other = 0; other < order.nodes.size(); ++other) {
    PiecePlace place{member};
    if (other != mine.node) {
      const int peer = order.nodes[other][mine.inside];
      place.slot = slots++;
      between.sends.push_back({peer, partial[other]});
      between.receives.push_back({peer, place});
    }
    sum.terms.push_back(place);
  }
  between.sums.push_back(std::move(sum));
  steps.push_back(std::move(between));
  return steps;
}

}  // namespace garonne::dist
