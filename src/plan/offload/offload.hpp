// Values and records that spend the time between two uses on a lower tier of memory: where a
// Program has such times, and the Program in which some of them are spent there.
#pragma once

#include <map>
#include <vector>

#include "base/device.hpp"
#include "plan/model/group_links.hpp"
#include "plan/program/program.hpp"

namespace garonne::plan {

// A buffer of the device between two uses, in places of the list. What another lane does with it
// lasts until its Wait.
struct IdleTime {
  int buffer = -1;
  // Behind it the buffer has what it has in the idle time, and is there.
  int complete_at = -1;
  int last_use = -1;
  int next_use = -1;

  bool operator==(const IdleTime&) const = default;
};

// Those of all values and records of a legal Program with an instruction between the uses, by
// buffer and then in order.
std::vector<IdleTime> idle_times(const Program& program);

// Places of the list, with complete_at <= out_behind <= last_use < room_from <= back_from <=
// next_use.
struct Offload {
  IdleTime idle;
  Tier tier = Tier::Host;
  int out_behind = -1;  // what reads it may run beside the copy
  int room_from = -1;  // this instruction has the bytes of the buffer: the copy is waited for first
  int back_from = -1;  // they are taken again when this one begins, and are needed by the next use
};

// From the device to a tier below it, and back.
struct TierLinks {
  Link out;
  Link in;

  bool operator==(const TierLinks&) const = default;
};

// Of the Program: the content of one buffer goes to another on the tier above or below, on the lane
// of such copies.
Instruction copy_instruction(const Program& program, int from, int to, const Link& link);

// The Program with the copies there and back, each on the lane of its kind, its waits, and a buffer
// on the tier for each buffer that is moved. The numbers of buffers stay; peak and seconds are
// those of its replay. An idle time may be asked for once. InternalError for places out of that
// order, and for a tier without links.
Program with_offloads(Program program, const std::vector<Offload>& offloads,
                      const std::map<Tier, TierLinks>& links);

}  // namespace garonne::plan
