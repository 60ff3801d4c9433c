// Cluster files that commands measure.
#pragma once

#include <string>
#include <vector>

#include "dist/session.hpp"
#include "plan/model/cluster.hpp"

namespace garonne::apps {

// Before minutes of measuring: ConfigError where `output` could not be written by `command`
// ("bench links"), or is another file than one of its own or one of `inputs`. Nothing for an empty
// one. Collective.
void expect_cluster_output(dist::Session& session, const std::string& output,
                           const std::string& command, const std::vector<std::string>& inputs = {});

// On rank 0, where there is an output. Collective.
void write_cluster(dist::Session& session, const std::string& output, const plan::Cluster& cluster);

}  // namespace garonne::apps
