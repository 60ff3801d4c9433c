// The folder of caches: private, and never through links of others.
#include "base/cache_folder.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/file.hpp"

namespace garonne {
namespace {

namespace fs = std::filesystem;

class CacheFolder : public ::testing::Test {
 protected:
  CacheFolder()
      : above_(fs::temp_directory_path() /
               ("garonne_cache_" +
                std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + "_" +
                std::to_string(::getpid()))) {
    fs::create_directories(above_);
  }
  ~CacheFolder() override { fs::remove_all(above_); }

  std::string path(const std::string& name) const { return (above_ / name).string(); }
  static unsigned mode(const std::string& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 0777U : 0U;
  }

  fs::path above_;
};

TEST_F(CacheFolder, KeepsFilesInAFolderOfItsUserAlone) {
  const std::string folder = path("new/cache");
  EXPECT_EQ(cache_refusal(folder), "");
  EXPECT_FALSE(read_cache_file(folder, "a.json"));
  const ::mode_t before = ::umask(0);
  EXPECT_TRUE(write_cache_file(folder, "a.json", "text"));
  ::umask(before);
  EXPECT_EQ(mode(folder), 0700U);
  EXPECT_EQ(read_cache_file(folder, "a.json"), "text");
  EXPECT_TRUE(write_cache_file(folder, "a.json", "other"));
  EXPECT_EQ(read_cache_file(folder, "a.json"), "other");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST_F(CacheFolder, IsNotUsedWhereOthersWrite) {
  const std::string folder = path("cache");
  ASSERT_TRUE(write_cache_file(folder, "a.json", "text"));
  for (const unsigned others : {0770U, 0777U, 0707U | 01000U}) {
    ASSERT_EQ(::chmod(folder.c_str(), others), 0);
    EXPECT_NE(cache_refusal(folder).find("others"), std::string::npos);
    EXPECT_FALSE(read_cache_file(folder, "a.json"));
    EXPECT_FALSE(write_cache_file(folder, "b.json", "text"));
    EXPECT_FALSE(fs::exists(folder + "/b.json"));
  }
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  EXPECT_EQ(read_cache_file(folder, "a.json"), "text");
}

TEST_F(CacheFolder, LinksInItAreNeitherReadNorWrittenThrough) {
  const std::string folder = path("cache");
  ASSERT_TRUE(write_cache_file(folder, "a.json", "text"));
  std::ofstream(path("elsewhere")) << "kept";
  fs::create_symlink(path("elsewhere"), folder + "/b.json");
  EXPECT_FALSE(read_cache_file(folder, "b.json"));
  EXPECT_TRUE(write_cache_file(folder, "b.json", "new"));
  EXPECT_EQ(read_text_file(path("elsewhere")), "kept");
  EXPECT_EQ(read_cache_file(folder, "b.json"), "new");
  ASSERT_EQ(::mkfifo((folder + "/c.json").c_str(), 0600), 0);
  EXPECT_FALSE(read_cache_file(folder, "c.json"));
}

TEST_F(CacheFolder, OfAnotherUserIsNotUsed) {
  const bool is_root = ::geteuid() == 0;
  // What is root's, by another user.
  if (is_root) {
    ASSERT_EQ(::seteuid(12345), 0);
  }
  EXPECT_NE(cache_refusal("/etc").find("belongs to another user"), std::string::npos);
  EXPECT_TRUE(fs::exists("/etc/passwd"));
  EXPECT_FALSE(read_cache_file("/etc", "passwd"));
  EXPECT_TRUE(fs::is_symlink("/proc/mounts"));
  EXPECT_NE(cache_refusal("/proc/mounts").find("is a link"), std::string::npos);
  if (!is_root) return;
  // Single files and links in a folder of one's own: only root can give them away.
  ASSERT_EQ(::seteuid(0), 0);
  const std::string folder = path("cache");
  ASSERT_TRUE(write_cache_file(folder, "a.json", "text"));
  ASSERT_TRUE(write_cache_file(folder, "b.json", "text"));
  ASSERT_EQ(::chown((folder + "/b.json").c_str(), 12345, 12345), 0);
  EXPECT_EQ(read_cache_file(folder, "a.json"), "text");
  EXPECT_FALSE(read_cache_file(folder, "b.json"));
  ASSERT_EQ(::chown(folder.c_str(), 12345, 12345), 0);
  EXPECT_NE(cache_refusal(folder).find("another user"), std::string::npos);
  EXPECT_FALSE(read_cache_file(folder, "a.json"));
  fs::create_symlink(path("mine"), path("link"));
  fs::create_directory(path("mine"));
  EXPECT_EQ(cache_refusal(path("link")), "");
  ASSERT_EQ(::lchown(path("link").c_str(), 12345, 12345), 0);
  EXPECT_NE(cache_refusal(path("link")).find("link"), std::string::npos);
}

TEST_F(CacheFolder, WithoutAHomeIsTheUsersOwnOfTheTemporaryFolder) {
  struct Variable {
    explicit Variable(const char* variable) : name(variable) {
      if (const char* given = std::getenv(name)) value = given;
      ::unsetenv(name);
    }
    ~Variable() {
      if (value.empty()) {
        ::unsetenv(name);
      } else {
        ::setenv(name, value.c_str(), 1);
      }
    }
    const char* name;
    std::string value;
  };
  const Variable given("GARONNE_CACHE");
  const Variable cache("XDG_CACHE_HOME");
  const Variable home("HOME");
  const Variable temporary("TMPDIR");
  EXPECT_EQ(cache_folder(), "/tmp/garonne-cache-" + std::to_string(::geteuid()));
  ::setenv("TMPDIR", "/scratch", 1);
  EXPECT_EQ(cache_folder(), "/scratch/garonne-cache-" + std::to_string(::geteuid()));
  ::setenv("HOME", "/home/me", 1);
  EXPECT_EQ(cache_folder(), "/home/me/.cache/garonne");
  ::setenv("XDG_CACHE_HOME", "/fast", 1);
  EXPECT_EQ(cache_folder(), "/fast/garonne");
  ::setenv("GARONNE_CACHE", "/mine", 1);
  EXPECT_EQ(cache_folder(), "/mine");
}

// A disk that is full leaves nothing behind: here, one that takes no more than 4 KiB of a file.
TEST_F(CacheFolder, WhatCannotBeWrittenLeavesNothing) {
  const std::string folder = path("cache");
  ASSERT_TRUE(write_cache_file(folder, "a.json", "text"));
  EXPECT_FALSE(write_cache_file(folder, "no/such/folder.json", "text"));
  const auto write_with_a_limit = [&] {
    const rlimit limit{4096, 4096};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, SIG_IGN);
    std::_Exit(write_cache_file(folder, "b.json", std::string(100'000, 'x')) ? 1 : 0);
  };
  EXPECT_EXIT(write_with_a_limit(), ::testing::ExitedWithCode(0), "");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace garonne
