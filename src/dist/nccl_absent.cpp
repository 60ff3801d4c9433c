// Stands in for nccl_transport.cpp in builds without NCCL.
#include "base/error.hpp"
#include "dist/transports.hpp"

namespace garonne::dist {

void expect_nccl_built() {
  throw NotBuiltError("NCCL",
                      "configure with scripts/setup --cuda, or set grid.transport to \"mpi\"");
}

std::unique_ptr<Transport> make_nccl_transport(Session&, CommunicationThread&, std::vector<int>,
                                               const TransportOptions&) {
  expect_nccl_built();
  return nullptr;
}

}  // namespace garonne::dist
