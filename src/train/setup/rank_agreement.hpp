// What the ranks of a run have to have alike, and find out about each other before they train: the
// configuration, the machine, the checkpoint and the data. Ranks that differ would train on, and
// save a mixture of several models.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/config.hpp"
#include "dist/fact_agreement.hpp"
#include "dist/session.hpp"
#include "train/run/run_directory.hpp"
#include "train/setup/cluster.hpp"
#include "train/setup/planning.hpp"
#include "train/workload/workload.hpp"

namespace garonne::train {

// Every key by its effective value, run.directory as an absolute path. Of keys that name files to
// read the contents count and not the path: those of data.* are in Workload::contents, that of
// grid.schedule_file is here. Throws ConfigError where that file cannot be read.
dist::Facts configuration_facts(const RunConfig& config);
// What decides bits and comes from neither file nor command line: instruction sets, and variables
// of the environment that libraries look at; for runs in bfloat16 also whether the processor
// multiplies it. Throws ConfigError for GARONNE_INSTRUCTIONS that this processor lacks.
dist::Facts machine_facts(const RunConfig& config);
// The libraries that the products were given to, as this process has them.
dist::Facts product_facts(const nlohmann::json& products);
dist::Facts checkpoint_facts(const StartingPoint& start);

// Refuses ranks whose configuration or machine differ (dist::agree_on), before anything that
// depends on either is collective. Returns the threads of a rank: run.threads, else what the rank
// with the fewest has. Collective.
int agree_on_run(const RunConfig& config, dist::Session& session,
                 const Cores& cores = Cores::of_this_process());

// Of the node that has most. Where nodes have equally many, that of a cluster file. Collective.
int ranks_on_largest_node(dist::Session& session);

// The configuration with rank 0's paths of files that are read, for what is written and read by all
// ranks: checkpoints and their manifests. Collective.
RunConfig with_paths_of_first_rank(RunConfig config, dist::Session& session);

// memory.budget; where it is "auto", the least that any rank finds free. Collective.
std::int64_t budget_of_ranks(const RunConfig& config, dist::Session& session);

// InternalError where the ranks of one stage came to different Programs. Collective.
void expect_same_programs(const Grid& grid, const plan::Program& program, dist::Session& session);

}  // namespace garonne::train
