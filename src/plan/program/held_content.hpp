// What the buffers of a Program hold while its contents are followed. Private to plan/program.
#pragma once

#include <set>
#include <utility>
#include <vector>

namespace garonne::plan {

// By (node, input): who has contributed to the gradient of a value.
using Contributions = std::set<std::pair<int, int>>;

struct Gradient {
  int value = -1;
  int micro_batch = -1;
  Contributions contributions;
};

// A buffer of gradients may have several names: aliases.
struct HeldContent {
  int value = -1;  // of the micro-batch, where it is a value
  int node = -1;   // whose private slot, where it is one
  int slot = -1;
  int option = -1;  // in which of the node's ways to be kept
  int micro_batch = -1;
  int lasting = -1;  // buffer, where it has what that has
  int bucket = -1;   // of whose parameters it is the flat range
  int shard = -1;    // of which bucket it is the own shard
  // What a pass that is divided hands to its collective, and whether it has come back.
  int exchanged_by = -1;  // node
  bool of_forward = false;
  bool came_back = false;
  bool in_part = false;  // a message of which the other tensor ranks have the other parts
  std::vector<Gradient> gradients;
};

}  // namespace garonne::plan
