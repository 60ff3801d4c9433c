// How each transport is made. For the room's own use.
#pragma once

#include <memory>
#include <vector>

#include "dist/transport.hpp"

namespace garonne::dist {

std::unique_ptr<Transport> make_self_transport(std::vector<int> members, int rank);

// Collective over the group.
std::unique_ptr<Transport> make_mpi_transport(Session& session, CommunicationThread& thread,
                                              std::vector<int> members);

// Throws NotBuiltError in builds without NCCL; for checks before anything is started.
void expect_nccl_built();
// Collective over the group. Throws NotBuiltError in builds without NCCL.
std::unique_ptr<Transport> make_nccl_transport(Session& session, CommunicationThread& thread,
                                               std::vector<int> members,
                                               const TransportOptions& options);

}  // namespace garonne::dist
