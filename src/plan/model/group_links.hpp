// Which links the groups of a grid communicate over, and what collectives and messages cost there.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/grid.hpp"
#include "plan/model/cluster.hpp"
#include "plan/model/group_axis.hpp"

namespace garonne::plan {

// Seconds of a collective of `bytes` (the whole buffer) among `members`, as a ring does it: members
// − 1 steps of bytes / members, and as many again for an all-reduce, which gathers what it has
// reduced. `kind`: "all-reduce", "reduce-scatter" or "all-gather". Where the link has a curve, its
// rate is that of the whole buffer, counted as libraries count it: by what passes each link.
double collective_seconds(std::string_view kind, std::int64_t bytes, std::int64_t members,
                          const Link& link);
inline double message_seconds(std::int64_t bytes, const Link& link) {
  const auto sent = static_cast<double>(bytes);
  if (!link.curve.empty()) return link.latency_seconds + link.curve.seconds(sent);
  return link.latency_seconds + sent / link.bytes_per_second;
}

// The slowest link of a group, and whether it leaves the node.
struct GroupLink {
  Link link;
  bool between_nodes = false;
  // Above 1 where collectives go in two levels: within the nodes, each of which has so many members
  // of the group, over `inside`; then each member with those in its place on the other nodes, over
  // `link`, which is what one of them has of what leaves the node.
  int members_on_node = 1;
  Link inside = {};
};

// The same over the links of a group: on one level as above, on two the ring of the members on a
// node for the whole buffer, then that of the nodes for the part of one member.
double collective_seconds(std::string_view kind, std::int64_t bytes, std::int64_t members,
                          const GroupLink& group);

// Bytes that a rank sends, by the links that they take.
struct LinkTraffic {
  double inside = 0;   // its node
  double between = 0;  // nodes
};
// What each member sends in the rings of collective_seconds(); of one ring over several nodes, the
// member that sends to the next node.
LinkTraffic collective_traffic(std::string_view kind, std::int64_t bytes, std::int64_t members,
                               const GroupLink& group);

// The links of the groups that one rank is in.
struct StepLinks {
  GroupLink tensor;
  GroupLink data;
  GroupLink tied;
  GroupLink world;
  std::vector<Link> pipeline;  // to each member of the pipeline; empty = the default

  // Of collectives; a pipeline has a link to each stage (InternalError).
  const GroupLink& of_group(GroupAxis group) const;
  Link to_stage(int member) const;
};

// The slowest link of groups that communicate at the same time. Rank r is on node r /
// devices_per_node. Where the devices of a node share what leaves it, all that leave it at once
// have equal parts: groups, or with two levels every member. Two levels are for a cluster with
// `two_level_collectives`, where all groups that leave a node have equally many members, above 1,
// on each of their nodes.
GroupLink slowest_link(const Cluster& cluster, const std::vector<std::vector<int>>& groups);

// Of a whole grid; all groups along an axis keep step, so that the slowest is everybody's.
class GridLinks {
 public:
  GridLinks(const Cluster& cluster, const Grid& grid);

  const GroupLink& tensor() const { return tensor_; }
  const GroupLink& data() const { return data_; }
  const GroupLink& world() const { return world_; }
  // Between the ranks of two pipeline stages.
  GroupLink stages(int a, int b) const;
  // Of a group of ranks along an axis; a pipeline has a link to each stage (InternalError).
  GroupLink of_group(GroupAxis axis, const std::vector<int>& members) const;

  // Of the ranks of a stage; `tied`: the two stages that sum the gradients of tied parameters, or
  // none.
  StepLinks of_stage(int stage, const std::vector<int>& tied) const;

 private:
  Cluster cluster_;
  Grid grid_;
  GroupLink tensor_;
  GroupLink data_;
  GroupLink world_;
};

}  // namespace garonne::plan
