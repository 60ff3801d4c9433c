// Stands in for NCCL and for the kernel of the sums in builds without them.
#include "base/error.hpp"
#include "dist/device_sum.hpp"
#include "dist/nccl_library.hpp"
#include "dist/transports.hpp"

namespace garonne::dist {

bool built_with_nccl() {
  return false;
}

void expect_nccl_built() {
  throw NotBuiltError("NCCL",
                      "configure with scripts/setup --cuda, or set grid.transport to \"mpi\"");
}

std::unique_ptr<NcclLibrary> make_nccl_library() {
  expect_nccl_built();
  return nullptr;
}

device::CudaStatus device_sum_in_order(void*, const DeviceTerms&, std::int64_t, SumType,
                                       device::CudaStream) {
  throw InternalError("a sum on a GPU in a build without CUDA");
}

}  // namespace garonne::dist
