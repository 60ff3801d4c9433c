#include "plan/job/job_script.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "plan/model/cluster.hpp"

namespace garonne::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

JobScript job_of(std::int64_t ranks, std::int64_t ranks_on_node) {
  JobScript job;
  job.name = "small run";
  job.run_file = "/home/user/it's here/run.toml";
  job.options = {"--grid.data", "2", "--data.path", "a b"};
  job.garonne = "/opt/garonne/bin/garonne";
  job.folder = "/home/user/it's here";
  job.ranks = ranks;
  job.ranks_on_node = ranks_on_node;
  job.threads = 7;
  return job;
}

TEST(JobScript, AsksForTheNodesOfTheGrid) {
  const std::string text = to_sbatch(job_of(10, 4));
  for (const char* line :
       {"#SBATCH --job-name=small_run\n", "#SBATCH --nodes=3\n", "#SBATCH --ntasks=10\n",
        "#SBATCH --ntasks-per-node=4\n", "#SBATCH --cpus-per-task=7\n", "#SBATCH --requeue\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("--gpus-per-node")));
  EXPECT_THAT(text, HasSubstr("run_file='/home/user/it'\\''s here/run.toml'\n"));
  EXPECT_THAT(text, HasSubstr("options=(--grid.data 2 --data.path 'a b' \"$@\")\n"));
  EXPECT_THAT(to_sbatch(job_of(2, 8)), HasSubstr("#SBATCH --ntasks-per-node=2\n"));
}

TEST(JobScript, DirectivesStandBeforeTheFirstCommand) {
  JobScript job = job_of(8, 4);
  job.facts.directives = "--constraint=a100  --hint=nomultithread";
  job.on_gpus = true;
  const std::string text = to_sbatch(job);
  const std::size_t first_command = text.find("\nset -euo pipefail");
  ASSERT_NE(first_command, std::string::npos);
  EXPECT_LT(text.rfind("\n#SBATCH"), first_command);
  EXPECT_THAT(text, HasSubstr("\n#SBATCH --constraint=a100\n#SBATCH --hint=nomultithread\n"));
  EXPECT_THAT(text, HasSubstr("\n#SBATCH --gpus-per-node=4\n"));
}

TEST(JobScript, NamesThatAreNoWordsAreQuotedOrRefused) {
  JobScript job = job_of(1, 1);
  job.options = {"--run.directory", "$(touch x); `id` \"q\""};
  EXPECT_THAT(to_sbatch(job), HasSubstr("'$(touch x); `id` \"q\"'"));
  job.run_file = "a\n#SBATCH --wrap=x";
  EXPECT_THROW(to_sbatch(job), ConfigError);
  job = job_of(1, 1);
  job.name = "../a b\n#SBATCH";
  EXPECT_THAT(to_sbatch(job), HasSubstr("#SBATCH --job-name=.._a_b__SBATCH\n"));
}

TEST(JobScript, BeginsWhereItWasPlanned) {
  const std::string text = to_sbatch(job_of(1, 1));
  EXPECT_THAT(text, HasSubstr("\nplanned_in='/home/user/it'\\''s here'\n"
                              "cd \"${RUN_FROM:-$planned_in}\"\n"));
  EXPECT_THAT(text, Not(HasSubstr("SLURM_SUBMIT_DIR")));
}

TEST(JobScript, SaysHowManyStartsItTakes) {
  JobScript job = job_of(1, 1);
  EXPECT_EQ(job_starts(job), 0);  // nothing is known
  job.step_seconds = 1;
  job.steps = 4 * 3600;  // five hours with a quarter
  EXPECT_EQ(job_starts(job), 1);
  EXPECT_THAT(to_sbatch(job), Not(HasSubstr("starts of so long")));
  job.minutes = 60;  // of which the last three and two seconds are for the end
  EXPECT_EQ(job_starts(job), 6);
  EXPECT_THAT(to_sbatch(job), HasSubstr("# As it was asked for; all steps take about 6 starts"));
  EXPECT_THAT(to_sbatch(job), HasSubstr("most_starts=50\n"));
  job.minutes = 10;  // seven of them train
  EXPECT_EQ(job_starts(job), 44);
  EXPECT_THAT(to_sbatch(job), HasSubstr("most_starts=88\n"));
}

TEST(JobScript, TimeIsThatOfTheStepsWithinTheSites) {
  JobScript job = job_of(1, 1);
  EXPECT_EQ(job_minutes(job), 240);  // nothing is known
  job.step_seconds = 0.6;
  job.steps = 3600;  // 36 minutes, 45 with a quarter, 55 with ten more
  EXPECT_EQ(job_minutes(job), 60);
  job.facts.most_minutes = 30;
  EXPECT_EQ(job_minutes(job), 30);
  job.minutes = 20;
  EXPECT_EQ(job_minutes(job), 20);
  job.minutes = 0;
  job.facts.most_minutes = 0;
  job.steps = 1'000'000'000;
  EXPECT_EQ(job_minutes(job), 24 * 60);
}

TEST(JobScript, TheWarningLeavesTimeForAStepAndACheckpoint) {
  JobScript job = job_of(1, 1);
  EXPECT_EQ(warning_seconds(job), 180);
  job.step_seconds = 30;
  job.checkpoint_bytes = 2'000'000'000;  // 20 s at 100 MB/s
  job.minutes = 240;
  EXPECT_EQ(warning_seconds(job), 180 + 2 * (30 + 20));
  job.minutes = 2;
  EXPECT_EQ(warning_seconds(job), 60);
}

TEST(JobScript, WhereJobsAreNotQueuedAgainAnArrayGoesOn) {
  JobScript job = job_of(1, 1);
  job.facts.requeues = false;
  job.step_seconds = 1;
  job.steps = 4 * 3600;  // five hours with a quarter
  job.minutes = 120;
  const std::string text = to_sbatch(job);
  EXPECT_THAT(text, HasSubstr("#SBATCH --array=1-4%1\n"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --no-requeue\n"));
  EXPECT_THAT(text, HasSubstr("goes_on=chain "));
}

TEST(TimeLimit, IsReadAsSlurmReadsIt) {
  EXPECT_EQ(parse_time_limit("45"), 45);
  EXPECT_EQ(parse_time_limit("45:30"), 46);
  EXPECT_EQ(parse_time_limit("2:00:00"), 120);
  EXPECT_EQ(parse_time_limit("1-12"), 36 * 60);
  EXPECT_EQ(parse_time_limit("1-12:30"), 36 * 60 + 30);
  EXPECT_EQ(parse_time_limit("1-0:0:1"), 24 * 60 + 1);
  for (const char* wrong : {"", "0", "-", "1-", "a", "1:2:3:4", "1:", ":1", "-5", "1--2", "1e3",
                            "99999999999999999999", "1-2:3:4:5", " 1"}) {
    EXPECT_EQ(parse_time_limit(wrong), std::nullopt) << wrong;
  }
  for (const std::int64_t minutes : {1, 59, 60, 1439, 1440, 6000})
    EXPECT_EQ(parse_time_limit(format_time_limit(minutes)), minutes);
  EXPECT_EQ(format_time_limit(6000), "4-04:00:00");
}

constexpr const char* machine = R"(
devices_per_node = 4
nodes = 2
[device]
memory = "1 GiB"
bytes_per_second = 1e9
[device.flops]
float32 = 1e9
[link.inside_node]
latency_seconds = 0
bytes_per_second = 1e9
[link.between_nodes]
latency_seconds = 0
bytes_per_second = 1e9
)";

TEST(JobFacts, AreReadFromClusterFiles) {
  const std::string text = std::string(machine) +
                           "network = \"slingshot\"\ninterface = \"hsn0\"\n[host]\ncores = 56\n"
                           "[slurm]\nlauncher = \"mpirun\"\ndirectives = \"-C gpu\"\n";
  EXPECT_THROW(parse_cluster(text, "test"), ConfigError);  // "gpu" is no option
  const std::string right = std::string(machine) +
                            "network = \"slingshot\"\ninterface = \"hsn0\"\n[host]\ncores = 56\n"
                            "[slurm]\nlauncher = \"mpirun\"\ndirectives = \"--constraint=gpu\"\n"
                            "time_limit = \"1-0\"\nrequeue = false\n";
  EXPECT_EQ(parse_cluster(right, "test").nodes, 2);  // which has other uses for the file
  const JobFacts job = parse_job_facts(right, "test");
  EXPECT_EQ(job.cores, 56);
  EXPECT_EQ(job.network, "slingshot");
  EXPECT_EQ(job.interface, "hsn0");
  EXPECT_EQ(job.launcher, "mpirun");
  EXPECT_EQ(job.directives, "--constraint=gpu");
  EXPECT_EQ(job.most_minutes, 1440);
  EXPECT_FALSE(job.requeues);
}

TEST(JobFacts, WhatWouldBeginAnotherLineIsRefused) {
  for (const char* wrong :
       {"[slurm]\ndirectives = \"--a\\n#SBATCH --b\"", "[slurm]\nlauncher = \"ssh\"",
        "network = \"token-ring\"", "interface = \"a b\"", "interface = \"\"",
        "[slurm]\ntime_limit = \"soon\"", "[host]\ncores = 0", "[slurm]\nrequeue = 1"}) {
    EXPECT_THROW(parse_cluster(machine + std::string(wrong) + "\n", "test"), ConfigError) << wrong;
  }
}

}  // namespace
}  // namespace garonne::plan
