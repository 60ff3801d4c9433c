#include "dist/launcher.hpp"

#include <gtest/gtest.h>

#include <map>

namespace garonne::dist {
namespace {

std::optional<Launcher> detect(const std::map<std::string, std::string>& environment) {
  return detect_launcher([&](const char* name) -> const char* {
    const auto entry = environment.find(name);
    return entry == environment.end() ? nullptr : entry->second.c_str();
  });
}

TEST(Launcher, NoneInAPlainShell) {
  EXPECT_FALSE(detect({{"HOME", "/root"}}));
}

TEST(Launcher, KnowsTheSizeWhereTheLauncherTellsIt) {
  const auto open_mpi = detect({{"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "0"}});
  ASSERT_TRUE(open_mpi);
  EXPECT_EQ(open_mpi->variable, "OMPI_COMM_WORLD_SIZE");
  EXPECT_EQ(open_mpi->size, 4);
  EXPECT_EQ(detect({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}})->size, 2);
  EXPECT_EQ(detect({{"PMI_RANK", "1"}, {"PMI_SIZE", "two"}})->size, std::nullopt);
  EXPECT_EQ(detect({{"PMIX_RANK", "0"}})->size, std::nullopt);
}

TEST(Launcher, KnowsTheRankAndTheJob) {
  const auto open_mpi = detect(
      {{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"PMIX_NAMESPACE", "job.1"}});
  ASSERT_TRUE(open_mpi);
  EXPECT_EQ(open_mpi->rank_variable, "OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(open_mpi->rank, 3);
  EXPECT_EQ(open_mpi->job, "PMIX_NAMESPACE=job.1");
  const auto slurm = detect({{"SLURM_PROCID", "2"}, {"SLURM_STEP_NUM_TASKS", "4"}});
  ASSERT_TRUE(slurm);
  EXPECT_EQ(slurm->rank, 2);
  EXPECT_EQ(slurm->job, "");
}

TEST(Launcher, SlurmStepsAndBatchScripts) {
  EXPECT_FALSE(detect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));
  EXPECT_EQ(
      detect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}})->size,
      4);
  EXPECT_FALSE(detect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}));
  EXPECT_FALSE(
      detect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
  EXPECT_FALSE(detect({{"SLURM_NTASKS", "4"}}));
  // mpirun inside an allocation: its own count is right.
  EXPECT_EQ(
      detect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"OMPI_COMM_WORLD_SIZE", "2"}})->size,
      2);
}

}  // namespace
}  // namespace garonne::dist
