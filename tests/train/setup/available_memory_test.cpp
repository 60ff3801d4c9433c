// What an automatic budget goes by, in made-up trees of /proc and of control groups.
#include "train/setup/available_memory.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "train/mebibyte.hpp"

namespace garonne::train::test {
namespace {

namespace fs = std::filesystem;

class MadeUpSystem : public ::testing::Test {
 protected:
  MadeUpSystem()
      : root_(fs::temp_directory_path() /
              ("garonne_memory_" +
               std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + "_" +
               std::to_string(::getpid()))) {
    fs::remove_all(root_);
    write("proc/meminfo", "MemTotal:       9000000 kB\nMemAvailable:    4096000 kB\n");  // 4000 MiB
    write("proc/self/status", "VmSize:\t  102400 kB\nVmRSS:\t   51200 kB\nVmData:\t   20480 kB\n");
    write("proc/self/cgroup", "0::/slurm/job_7/step_0\n");
    sources_.proc = (root_ / "proc").string();
    sources_.control_groups = (root_ / "cgroup").string();
    sources_.environment = [this](const char* name) -> const char* {
      const auto found = environment_.find(name);
      return found == environment_.end() ? nullptr : found->second.c_str();
    };
  }
  ~MadeUpSystem() override { fs::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  void group(const std::string& path, const std::string& limit, std::int64_t used_mebibytes,
             std::int64_t droppable_mebibytes = 0) const {
    write("cgroup" + path + "/memory.max", limit + "\n");
    write("cgroup" + path + "/memory.current", std::to_string(used_mebibytes * mebibyte) + "\n");
    write("cgroup" + path + "/memory.stat",
          "anon 5\ninactive_file " + std::to_string(droppable_mebibytes * mebibyte) + "\n");
  }
  void expect(std::int64_t mebibytes, const std::string& source, int ranks = 1) const {
    const AvailableMemory found = available_memory(sources_, ranks);
    EXPECT_EQ(found.bytes, mebibytes * mebibyte / ranks / 64 * 64) << found.source;
    EXPECT_NE(found.source.find(source), std::string::npos) << found.source;
  }

  fs::path root_;
  MemorySources sources_;
  std::map<std::string, std::string> environment_;
};

TEST_F(MadeUpSystem, WithoutLimitsIsWhatIsFree) {
  expect(4000, "MemAvailable");
  expect(4000, "MemAvailable", 3);
  group("/slurm/job_7", "max", 100);
  expect(4000, "MemAvailable");
}

TEST_F(MadeUpSystem, TheLeastOfAControlGroupAndAllAboveIt) {
  group("/slurm/job_7/step_0", std::to_string(3000 * mebibyte), 500, 100);
  expect(2600, "memory.max of " + sources_.control_groups + "/slurm/job_7/step_0");
  group("/slurm", std::to_string(2000 * mebibyte), 800);
  expect(1200, "memory.max of " + sources_.control_groups + "/slurm");
  expect(1200, "/slurm", 4);
  group("", std::to_string(1000 * mebibyte), 900);
  expect(100, "memory.max of " + sources_.control_groups);
  group("/other", std::to_string(mebibyte), 0);  // not this process's
  expect(100, "memory.max of " + sources_.control_groups);
  write("cgroup/slurm/job_7/memory.high", std::to_string(60 * mebibyte));
  expect(60, "memory.high of " + sources_.control_groups + "/slurm/job_7");
  // Used up.
  group("/slurm/job_7", std::to_string(50 * mebibyte), 70);
  expect(0, "memory.max");
}

TEST_F(MadeUpSystem, VersionOneOfControlGroups) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/abc\n1:name=systemd:/y\n");
  const auto limit = [&](const std::string& path, const std::string& bytes, std::int64_t used) {
    write("cgroup/memory" + path + "/memory.limit_in_bytes", bytes);
    write("cgroup/memory" + path + "/memory.usage_in_bytes", std::to_string(used * mebibyte));
    write("cgroup/memory" + path + "/memory.stat",
          "cache 1\ntotal_inactive_file " + std::to_string(10 * mebibyte) + "\n");
  };
  limit("", "9223372036854771712", 8000);  // without end
  expect(4000, "MemAvailable");
  // In a container the path of the group is not there, its limit is at the mount.
  limit("", std::to_string(700 * mebibyte), 110);
  expect(600, "memory.limit_in_bytes of " + sources_.control_groups + "/memory");
  limit("/docker/abc", std::to_string(600 * mebibyte), 110);
  expect(500, "/memory/docker/abc", 2);
}

TEST_F(MadeUpSystem, SlurmsLimitsAreOfTheNode) {
  environment_["SLURM_MEM_PER_NODE"] = "2000";
  expect(2000 - 50, "SLURM_MEM_PER_NODE");
  expect(2000 - 4 * 50, "SLURM_MEM_PER_NODE", 4);
  environment_["SLURM_MEM_PER_CPU"] = "300";
  expect(2000 - 50, "SLURM_MEM_PER_NODE");  // of how many CPUs is not said
  environment_["SLURM_CPUS_ON_NODE"] = "4";
  expect(1200 - 50, "SLURM_MEM_PER_CPU * SLURM_CPUS_ON_NODE");
  environment_["SLURM_MEM_PER_NODE"] = "0";  // all of it
  environment_["SLURM_MEM_PER_CPU"] = "many";
  expect(4000, "MemAvailable");
}

TEST_F(MadeUpSystem, LimitsOfAProcessAreNotShared) {
  sources_.address_space_bytes = 600 * mebibyte;
  EXPECT_EQ(available_memory(sources_, 4).bytes, 500 * mebibyte);
  EXPECT_NE(available_memory(sources_, 4).source.find("RLIMIT_AS"), std::string::npos);
  sources_.data_bytes = 120 * mebibyte;
  EXPECT_EQ(available_memory(sources_, 4).bytes, 100 * mebibyte);
  EXPECT_NE(available_memory(sources_, 4).source.find("RLIMIT_DATA"), std::string::npos);
}

TEST_F(MadeUpSystem, WhatCannotBeReadIsNoLimit) {
  write("proc/self/cgroup", "\n:::\n0::\n0::relative\n0::/../..\nmemory\n4:memory:\n");
  write("cgroup/memory.max", "-5\n");
  expect(4000, "MemAvailable");
  write("proc/meminfo", "MemAvailable: lots\n");
  const AvailableMemory found = available_memory(sources_, 2);
  EXPECT_EQ(found.bytes, 0);
  EXPECT_EQ(found.source, "");
}

TEST(AvailableMemory, OfThisProcess) {
  const MemorySources here = MemorySources::of_this_process();
  const AvailableMemory alone = available_memory(here, 1);
  EXPECT_GT(alone.bytes, mebibyte);
  EXPECT_FALSE(alone.source.empty());
  const std::string line = describe_automatic_budget(3, 7 * mebibyte);
  EXPECT_TRUE(line.starts_with("memory.budget = auto: 7.00 MiB a rank, by ")) << line;
  EXPECT_NE(line.find("3 ranks"), std::string::npos);
}

}  // namespace
}  // namespace garonne::train::test
