// How transports are made. For the room's own use.
#pragma once

#include <memory>
#include <vector>

#include "dist/transport.hpp"

namespace garonne::dist {

std::unique_ptr<Transport> make_self_transport(std::vector<int> members, int rank);

// Collective over the group.
std::unique_ptr<Transport> make_mpi_transport(Session& session, CommunicationThread& thread,
                                              std::vector<int> members);

bool built_with_nccl();
// Throws NotBuiltError in builds without NCCL; for checks before anything is started.
void expect_nccl_built();

// As make_transport, of a group that sums some numbers alone: over NCCL it takes less memory of the
// device.
std::unique_ptr<Transport> make_number_transport(std::string_view name, Session& session,
                                                 CommunicationThread& thread,
                                                 std::vector<int> members,
                                                 const TransportOptions& options);

// Between buffers of a device: `host` moves what is staged in pinned memory.
std::unique_ptr<Transport> make_staged_transport(std::unique_ptr<Transport> host,
                                                 const Session& session,
                                                 const TransportOptions& options);

}  // namespace garonne::dist
