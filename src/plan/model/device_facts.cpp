#include "plan/model/device_facts.hpp"

namespace garonne::plan {
namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;

}  // namespace

std::vector<LibraryWorkspace> library_workspaces(const DeviceFacts& device) {
  if (!device.is_gpu() || device.architecture == 0) return {};
  // As runs set them on every GPU: CUBLAS_WORKSPACE_CONFIG=:4096:8, with which sums have one order,
  // and CUBLASLT_WORKSPACE_SIZE=32768.
  return {{"cublas", 32 * mebibyte}, {"cublaslt", 32 * mebibyte}};
}

}  // namespace garonne::plan
