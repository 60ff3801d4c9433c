// The folder of options: bounded, whoever writes.
#include "train/setup/option_folder.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "train/scratch.hpp"

namespace garonne::train::test {
namespace {

namespace fs = std::filesystem;

std::string name_of(int number) {
  return "blocks-" + std::to_string(number) + ".json";
}

std::int64_t bytes_in(const std::string& folder) {
  std::int64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder))
    bytes += static_cast<std::int64_t>(entry.file_size());
  return bytes;
}

// As if it had been used so many seconds after 2001.
void set_age(const std::string& path, int seconds) {
  const timespec at{1'000'000'000 + seconds, 0};
  const timespec times[2] = {at, at};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST(OptionFolder, RemovesThoseThatWereNotUsedTheLongest) {
  const Scratch scratch;
  const std::string folder = scratch.path("cache");
  OptionFolder cache(folder, 1000);
  EXPECT_FALSE(cache.find(name_of(0)));
  const std::string text(240, 'x');
  for (int n = 0; n < 4; ++n) {
    cache.keep(name_of(n), text);
    set_age(cache.place_of(name_of(n)), n);
  }
  EXPECT_EQ(bytes_in(folder), 960);
  // What was asked for is young again.
  EXPECT_EQ(cache.find(name_of(0)), text);
  cache.keep(name_of(4), text);
  EXPECT_TRUE(cache.find(name_of(0)));
  EXPECT_FALSE(cache.find(name_of(1)));
  for (int n = 2; n <= 4; ++n) EXPECT_TRUE(fs::exists(cache.place_of(name_of(n)))) << n;
  // One that is written anew is not counted twice.
  cache.keep(name_of(4), text);
  EXPECT_EQ(bytes_in(folder), 960);
  // Several go for a large one; one that can never be within the bound is not kept.
  cache.keep(name_of(5), std::string(1000, 'y'));
  EXPECT_EQ(bytes_in(folder), 1000);
  EXPECT_TRUE(cache.find(name_of(5)));
  cache.keep(name_of(6), std::string(1001, 'z'));
  EXPECT_FALSE(cache.find(name_of(6)));
  EXPECT_TRUE(cache.find(name_of(5)));
}

TEST(OptionFolder, LeavesOtherFilesAloneButNotWhatAKilledWriterLeft) {
  const Scratch scratch;
  const std::string folder = scratch.path("cache");
  OptionFolder cache(folder, 100);
  cache.keep(name_of(0), "a");
  write_bytes(folder + "/costs-0.json", std::string(500, 'c'));
  write_bytes(folder + "/blocks-1.json.partial-0123", std::string(500, 'p'));
  set_age(folder + "/blocks-1.json.partial-0123", 0);
  cache.keep(name_of(2), "b");
  EXPECT_TRUE(fs::exists(folder + "/costs-0.json"));
  EXPECT_FALSE(fs::exists(folder + "/blocks-1.json.partial-0123"));
  EXPECT_TRUE(cache.find(name_of(0)));
  EXPECT_TRUE(cache.find(name_of(2)));
}

// Two processes write and read the same names in different orders.
TEST(OptionFolder, IsWithinItsBoundAfterTwoProcesses) {
  const Scratch scratch;
  const std::string folder = scratch.path("cache");
  constexpr std::int64_t most = 4000;
  std::vector<pid_t> writers;
  for (int writer = 0; writer < 2; ++writer) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      OptionFolder cache(folder, most);
      int wrong = 0;
      for (int n = 0; n < 300; ++n) {
        const int number = (n * (writer == 0 ? 7 : 11)) % 40;
        const std::string text(static_cast<std::size_t>(100 + 10 * number), 'x');
        cache.keep(name_of(number), text);
        const auto found = cache.find(name_of((number + 13) % 40));
        // Whole or not there.
        if (found && found->size() != static_cast<std::size_t>(100 + 10 * ((number + 13) % 40)))
          ++wrong;
      }
      ::_exit(wrong == 0 ? 0 : 1);
    }
    writers.push_back(child);
  }
  for (const pid_t child : writers) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_LE(bytes_in(folder), most);
  EXPECT_GT(bytes_in(folder), 0);
}

}  // namespace
}  // namespace garonne::train::test
