// The cores of a process, as the system and its control groups say.
#include "base/process_cores.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace garonne {
namespace {

TEST(ProcessCores, AreThoseThatTheThreadIsBoundTo) {
  const std::vector<int> before = cores_of_this_process();
  ASSERT_FALSE(before.empty());
  std::vector<int> bound;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(before.back()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    bound = cores_of_this_process();
  }).join();
  EXPECT_EQ(bound, std::vector<int>{before.back()});
}

TEST(ProcessCores, AreWrittenAsTheSystemDoes) {
  EXPECT_EQ(core_list_text({}), "");
  EXPECT_EQ(core_list_text({5}), "5");
  EXPECT_EQ(core_list_text({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(core_list_text({0, 2, 3, 9, 10, 11}), "0,2-3,9-11");
}

class MadeUpGroups : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "garonne-groups-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    std::filesystem::create_directories(folder_ / "proc/self");
    std::filesystem::create_directories(folder_ / "groups/job/step");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& file, const std::string& text) const {
    std::ofstream(folder_ / file) << text;
  }
  double quota() const { return core_quota_of_this_process(folder_ / "proc", folder_ / "groups"); }

  std::filesystem::path folder_;
};

TEST_F(MadeUpGroups, TheLeastOfAllGroupsAboveCounts) {
  EXPECT_EQ(quota(), 0);
  write("proc/self/cgroup", "1:cpu:/else\n0::/job/step\n");
  EXPECT_EQ(quota(), 0);
  write("groups/job/step/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 0);
  write("groups/job/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 2.5);
  write("groups/job/step/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota(), 2.5);
  write("groups/cpu.max", "100000 100000\n");
  EXPECT_EQ(quota(), 1);
}

}  // namespace
}  // namespace garonne
