// Seconds of a model on a machine that is not this one.
#pragma once

#include <cstdint>
#include <string>

#include "plan/model/cluster.hpp"
#include "plan/model/cost_table.hpp"
#include "plan/model/group_links.hpp"
#include "plan/program/replay.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

// This machine as a cluster: so many ranks a node, and the fastest product that was measured where
// there is a table. Links are round numbers.
plan::Cluster this_machine(const RunConfig& config, const plan::CostTable& costs, int ranks,
                           int ranks_on_node);

// What a cluster file leaves out of products, to stand behind its name: that all of them reach one
// share of the device's rate. Empty where it has them by their sizes.
std::string describe_efficiency(const plan::Cluster& cluster);

// A line where a cluster file describes a GPU as if it were a processor, as those of version 1 do:
// by run.device, or by memory that no processor has. Empty elsewhere.
std::string note_of_processor(const RunConfig& config, const plan::Cluster& cluster);
// The figures of the cluster's seconds, for people.
std::string source_of(const plan::Cluster& cluster);

// memory.budget of a rank that has a device of the cluster for itself: what is given, or what a run
// takes there for "auto". Throws ConfigError where more is given than the cluster has for it.
std::int64_t budget_on_cluster(const RunConfig& config, const plan::Cluster& cluster);

// Puts the cluster's rates into the nodes and the step, measured costs over them where `costs` has
// them, and the links of rank 0's groups into what communicates. True when all nodes were measured.
bool apply_cluster(const plan::Cluster& cluster, const plan::CostTable& costs, Setup& whole);

// What goes on at once by the cluster's software; null: this program's.
plan::Overlap overlap_of(const plan::Cluster* cluster);

// The links of one stage (setup_of_stage).
void set_links(const plan::GridLinks& links, int stage, Setup& setup);

}  // namespace garonne::train
