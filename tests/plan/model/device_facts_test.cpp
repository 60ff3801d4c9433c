// What a GPU's libraries keep.
#include "plan/model/device_facts.hpp"

#include <gtest/gtest.h>

namespace garonne::plan {
namespace {

constexpr DeviceFacts h200{DeviceKind::Cuda, 90, 132};
constexpr DeviceFacts a100{DeviceKind::Cuda, 80, 108};
constexpr std::int64_t mebibyte = 1 << 20;

TEST(DeviceFacts, LibrariesKeepWorkspaces) {
  const auto bytes = [](const DeviceFacts& device) {
    std::int64_t sum = 0;
    for (const LibraryWorkspace& workspace : library_workspaces(device)) sum += workspace.bytes;
    return sum;
  };
  // Runs set them alike on every GPU.
  for (const DeviceFacts& device : {h200, a100}) EXPECT_EQ(bytes(device), 64 * mebibyte);
  EXPECT_EQ(bytes({}), 0);
  // Of which nobody said more: what libraries keep there is measured.
  EXPECT_EQ(bytes({DeviceKind::Cuda, 0, 0}), 0);
  EXPECT_EQ(h200.granularity(), 512);
  EXPECT_EQ(DeviceFacts().granularity(), 64);
  EXPECT_EQ((DeviceFacts{DeviceKind::Emulated, 0, 0}).granularity(), 64);
}

}  // namespace
}  // namespace garonne::plan
