// What becomes of values and records between the forwards that make them and the backwards that
// read them: the decision that policies and solvers make and that schedules carry out.
#pragma once

#include <string_view>
#include <vector>

#include "plan/model/model_graph.hpp"

namespace garonne::plan {

enum class Fate {
  Keep,         // stays where it is
  Recompute,    // goes with its last reader, and is made again before it is needed
  Host,         // is copied to the memory of the host, and back
  Disk,         // is written to a file, and read again
  Approximate,  // is kept in fewer bits than it was made in
};
inline constexpr int fate_count = 5;

// "keep", "recompute", "host", "disk", "approximate".
std::string_view to_string(Fate fate);

// What becomes of a node's record, and in which of the node's ways it is made whenever it is made.
struct RecordFate {
  Fate fate = Fate::Keep;
  int option = 0;  // of NodeSpec::keep_option

  bool operator==(const RecordFate&) const = default;
};

// Of one micro-batch.
struct Fates {
  std::vector<Fate> values;         // by value; loaded ones stay, whatever it says
  std::vector<RecordFate> records;  // by node
};
Fates keep_everything(const ModelGraph& graph);

// A node together with its output, as searches over single nodes decide.
void set_fate(const ModelGraph& graph, int node, RecordFate fate, Fates& fates);

// The ways to be kept that a plan may choose: those that are exact.
std::vector<int> exact_options(const NodeSpec& node);

// What a node and its output may become in the plans of today, as searches try it: kept in each of
// its exact ways, the first one first, then made again.
std::vector<RecordFate> possible_fates(const NodeSpec& node);

// Whether it is there later, rather than made again. Throws InternalError that names what and its
// fate where that is none that a schedule can place (Host, Disk, Approximate), also under the name
// of another: a record that is kept in a way that is not exact.
bool is_kept(const ValueSpec& value, Fate fate);
bool is_kept(const NodeSpec& node, RecordFate fate);

}  // namespace garonne::plan
