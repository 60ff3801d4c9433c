// What there is to know of each lane: a lane is an enumerator and its row here.
#pragma once

#include <span>
#include <string_view>

#include "base/device.hpp"

namespace garonne {

struct LaneKind {
  Lane lane = Lane::Compute;
  std::string_view name;
  // Whether what was put there later also ends later.
  bool ends_in_order = true;
};

// By number. Messages and collectives end as their partners come.
inline constexpr LaneKind built_in_lanes[] = {
    {Lane::Compute, "compute"},
    {Lane::Message, "message", false},
    {Lane::Collective, "collective", false},
    {Lane::CopyOut, "copy-out"},
    {Lane::CopyIn, "copy-in"},
    {Lane::DiskWrite, "disk-write"},
    {Lane::DiskRead, "disk-read"},
    {Lane::HostCompute, "host-compute"},
};
static_assert(std::size(built_in_lanes) == lane_count, "a lane without a row");

// What arrays by lane have room for.
inline constexpr int most_lanes = 12;
static_assert(lane_count <= most_lanes);

// Those of the program, by number. A file of its own says that they are the built-in ones, so that
// a test may be linked with one that has more.
std::span<const LaneKind> lanes();

// InternalError for a number that is no lane's.
const LaneKind& kind_of(Lane lane);

}  // namespace garonne
