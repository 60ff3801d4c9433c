#include "plan/model/group_links.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "base/error.hpp"

namespace garonne::plan {
namespace {

// Every group along an axis once.
std::vector<std::vector<int>> groups_along(const Grid& grid, Axis axis) {
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const Coordinates at = grid.coordinates_of(rank);
    const int place = axis == Axis::Tensor ? at.tensor : axis == Axis::Data ? at.data : at.pipeline;
    if (place == 0) groups.push_back(grid.group(axis, rank));
  }
  return groups;
}

double phases(std::string_view kind) {
  return kind == "all-reduce" ? 2 : 1;
}

double ring_seconds(double bytes, std::int64_t members, const Link& link) {
  const auto steps = static_cast<double>(members - 1);
  const double part = bytes / static_cast<double>(members);
  if (link.curve.empty()) return steps * (link.latency_seconds + part / link.bytes_per_second);
  return steps * link.latency_seconds +
         steps / static_cast<double>(members) * link.curve.seconds(bytes);
}

// One of those that a collective consists of.
struct Ring {
  double bytes = 0;  // of the buffer that goes round
  std::int64_t members = 0;
  const Link* link = nullptr;
  bool between_nodes = false;
};

// `group` outlives them.
std::vector<Ring> rings_of(std::int64_t bytes, std::int64_t members, const GroupLink& group) {
  if (members < 2) return {};
  const std::int64_t on_node = group.members_on_node;
  expect(members % on_node == 0, "two levels have equally many members on each node");
  const auto whole = static_cast<double>(bytes);
  std::vector<Ring> rings = {
      {whole / static_cast<double>(on_node), members / on_node, &group.link, group.between_nodes}};
  if (on_node > 1) rings.push_back({whole, on_node, &group.inside, false});
  return rings;
}

}  // namespace

double collective_seconds(std::string_view kind, std::int64_t bytes, std::int64_t members,
                          const Link& link) {
  return collective_seconds(kind, bytes, members, GroupLink{link, false});
}

double collective_seconds(std::string_view kind, std::int64_t bytes, std::int64_t members,
                          const GroupLink& group) {
  double seconds = 0;
  for (const Ring& ring : rings_of(bytes, members, group))
    seconds += ring_seconds(ring.bytes, ring.members, *ring.link);
  return phases(kind) * seconds;
}

LinkTraffic collective_traffic(std::string_view kind, std::int64_t bytes, std::int64_t members,
                               const GroupLink& group) {
  LinkTraffic traffic;
  for (const Ring& ring : rings_of(bytes, members, group)) {
    const auto steps = static_cast<double>(ring.members - 1);
    (ring.between_nodes ? traffic.between : traffic.inside) +=
        phases(kind) * steps * ring.bytes / static_cast<double>(ring.members);
  }
  return traffic;
}

const GroupLink& StepLinks::of_group(GroupAxis group) const {
  switch (group) {
    case GroupAxis::Tensor:
      return tensor;
    case GroupAxis::Data:
      return data;
    case GroupAxis::Tied:
      return tied;
    case GroupAxis::World:
      return world;
    case GroupAxis::Pipeline:
      break;
  }
  throw InternalError("no collective meets in a pipeline");
}

Link StepLinks::to_stage(int member) const {
  return pipeline.empty() ? Link() : pipeline.at(static_cast<std::size_t>(member));
}

GroupLink slowest_link(const Cluster& cluster, const std::vector<std::vector<int>>& groups) {
  std::map<int, int> leaving;  // node -> groups that leave it
  std::set<int> counts;        // members of one of them on a node
  for (const auto& group : groups) {
    std::map<int, int> nodes;
    for (const int rank : group) ++nodes[rank / cluster.devices_per_node];
    if (nodes.size() < 2) continue;
    for (const auto& [node, count] : nodes) {
      ++leaving[node];
      counts.insert(count);
    }
  }
  if (leaving.empty()) return {cluster.inside_node, false};
  GroupLink slowest{cluster.between_nodes, true};
  if (cluster.two_level_collectives && counts.size() == 1 && *counts.begin() > 1) {
    slowest.members_on_node = *counts.begin();
    slowest.inside = cluster.inside_node;
  }
  if (cluster.shared_by_node) {
    int most = 1;
    for (const auto& [node, count] : leaving) most = std::max(most, count);
    most *= slowest.members_on_node;
    slowest.link.bytes_per_second /= most;
    slowest.link.curve = slowest.link.curve.shared_by(most);
  }
  return slowest;
}

GridLinks::GridLinks(const Cluster& cluster, const Grid& grid) : cluster_(cluster), grid_(grid) {
  tensor_ = slowest_link(cluster, groups_along(grid, Axis::Tensor));
  data_ = slowest_link(cluster, groups_along(grid, Axis::Data));
  std::vector<int> all(static_cast<std::size_t>(grid.ranks()));
  std::iota(all.begin(), all.end(), 0);
  world_ = slowest_link(cluster, {all});
}

GroupLink GridLinks::stages(int a, int b) const {
  const int size = grid_.shape().data * grid_.shape().tensor;
  std::vector<std::vector<int>> pairs;
  for (int k = 0; k < size; ++k) pairs.push_back({a * size + k, b * size + k});
  return slowest_link(cluster_, pairs);
}

GroupLink GridLinks::of_group(GroupAxis axis, const std::vector<int>& members) const {
  if (axis == GroupAxis::Tensor) return tensor_;
  if (axis == GroupAxis::Data) return data_;
  if (axis == GroupAxis::World) return world_;
  expect(axis == GroupAxis::Tied, "no collective meets in a pipeline");
  return stages(grid_.coordinates_of(members.front()).pipeline,
                grid_.coordinates_of(members.back()).pipeline);
}

StepLinks GridLinks::of_stage(int stage, const std::vector<int>& tied) const {
  StepLinks links;
  links.tensor = tensor_;
  links.data = data_;
  links.world = world_;
  links.tied = tied.size() == 2 ? stages(tied[0], tied[1]) : GroupLink();
  for (int other = 0; other < grid_.shape().pipeline; ++other)
    links.pipeline.push_back(other == stage ? Link() : stages(stage, other).link);
  return links;
}

}  // namespace garonne::plan
