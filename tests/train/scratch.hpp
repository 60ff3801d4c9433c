// A folder of one test's files, and helpers to fill, read and damage them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.hpp"

namespace garonne::train::test {

// Made empty, removed at the end.
class Scratch {
 public:
  Scratch() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("garonne_") + test->test_suite_name() + "_" + test->name() + "_" +
               std::to_string(::getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name = "") const {
    return name.empty() ? folder_.string() : (folder_ / name).string();
  }

 private:
  std::filesystem::path folder_;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

// Runs `action`, expects an IoError for `path` whose message holds `part`.
template <typename Action>
void expect_io_error(const std::string& path, const std::string& part, Action action) {
  try {
    action();
  } catch (const IoError& error) {
    EXPECT_EQ(error.path(), path) << error.what();
    EXPECT_EQ(error.code(), ExitCode::Data);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return;
  }
  ADD_FAILURE() << "no error for " << path << "; expected: " << part;
}

}  // namespace garonne::train::test
