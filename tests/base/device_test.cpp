#include "base/device.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "base/error.hpp"
#include "base/lane.hpp"

namespace garonne {
namespace {

// The names of the first `count` enumerators; the one after them is none.
template <typename Enumeration>
std::set<std::string_view> names_of_first(int count) {
  std::set<std::string_view> names;
  for (int i = 0; i < count; ++i) names.insert(to_string(static_cast<Enumeration>(i)));
  EXPECT_THROW((void)to_string(static_cast<Enumeration>(count)), InternalError);
  return names;
}

TEST(Device, KindsTiersAndLanesHaveNamesOfTheirOwn) {
  using Names = std::set<std::string_view>;
  EXPECT_EQ(names_of_first<DeviceKind>(3), (Names{"cpu", "cuda", "emulated"}));
  EXPECT_EQ(names_of_first<Tier>(3), (Names{"device", "disk", "host"}));
  EXPECT_EQ(names_of_first<Lane>(8), (Names{"collective", "compute", "copy-in", "copy-out",
                                            "disk-read", "disk-write", "host-compute", "message"}));
}

// Those of the product: what tests add stays with them.
TEST(Lanes, AreTheBuiltInOnesByNumber) {
  ASSERT_EQ(lanes().size(), static_cast<std::size_t>(lane_count));
  for (std::size_t number = 0; number < lanes().size(); ++number) {
    EXPECT_EQ(lanes()[number].lane, static_cast<Lane>(number));
    EXPECT_EQ(&kind_of(static_cast<Lane>(number)), &lanes()[number]);
  }
  EXPECT_THROW(kind_of(static_cast<Lane>(-1)), InternalError);
}

TEST(Device, DefaultQueueIsTheHosts) {
  const Queue queue;
  EXPECT_EQ(queue.device, DeviceKind::Cpu);
  EXPECT_EQ(queue.native, nullptr);
  EXPECT_EQ(queue.threads, 0);
}

}  // namespace
}  // namespace garonne
