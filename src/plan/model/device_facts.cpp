#include "plan/model/device_facts.hpp"

namespace garonne::plan {
namespace {

constexpr std::int64_t mebibyte = std::int64_t{1} << 20;
// Hopper.
constexpr int architecture_with_large_workspace = 90;

}  // namespace

std::vector<LibraryWorkspace> library_workspaces(const DeviceFacts& device) {
  if (!device.is_gpu() || device.architecture == 0) return {};
  const bool large = device.architecture >= architecture_with_large_workspace;
  // CUBLAS_WORKSPACE_CONFIG=:4096:8, with which sums have one order.
  return {{"cublas", 32 * mebibyte}, {"cublaslt", (large ? 32 : 4) * mebibyte}};
}

}  // namespace garonne::plan
