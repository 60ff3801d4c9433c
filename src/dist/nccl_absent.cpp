// Stands in for nccl_transport.cpp in builds without NCCL.
#include "base/error.hpp"
#include "dist/transports.hpp"

namespace garonne::dist {

std::unique_ptr<Transport> make_nccl_transport(Session&, CommunicationThread&, std::vector<int>,
                                               const TransportOptions&) {
  throw NotBuiltError("NCCL",
                      "configure with scripts/setup --cuda, or set grid.transport to \"mpi\"");
}

}  // namespace garonne::dist
