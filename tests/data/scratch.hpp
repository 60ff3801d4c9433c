// A folder of one test's files, and helpers to fill it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "base/error.hpp"
#include "data/tokens/text_converter.hpp"

namespace garonne::data::testing {

// Made empty, removed at the end.
class Scratch {
 public:
  Scratch() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("garonne_") + test->test_suite_name() + "_" + test->name() + "_" +
               std::to_string(getpid()));
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

 private:
  std::filesystem::path folder_;
};

// Whether something that was begun for `path` lies beside it.
inline bool left_beside(const std::string& path) {
  const std::filesystem::path whole = std::filesystem::absolute(path);
  for (const auto& entry : std::filesystem::directory_iterator(whole.parent_path())) {
    if (entry.path().filename().string().rfind(whole.filename().string() + ".partial", 0) == 0)
      return true;
  }
  return false;
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// Any bytes, newlines among them; the same for the same seed.
inline std::string random_text(std::size_t bytes, unsigned seed) {
  std::mt19937 generator(seed);
  std::string text(bytes, ' ');
  for (char& character : text) character = static_cast<char>(generator() & 0xFFU);
  return text;
}

// A tokens file of `training` and, unless empty, `validation`.
inline std::string make_token_file(const Scratch& scratch, const std::string& training,
                                   const std::string& validation = "") {
  TextConversion conversion;
  conversion.inputs = {scratch.write("training.txt", training)};
  if (!validation.empty()) {
    conversion.validation_inputs = {scratch.write("validation.txt", validation)};
  }
  conversion.output = scratch.path("tokens.h5");
  conversion.show_progress = false;
  convert_text(conversion);
  return conversion.output;
}

// Runs `action`, expects an IoError for `path` whose message holds `part`; returns the message.
template <typename Action>
std::string expect_io_error(const std::string& path, const std::string& part, Action action) {
  try {
    action();
  } catch (const IoError& error) {
    EXPECT_EQ(error.path(), path);
    EXPECT_EQ(error.code(), ExitCode::Data);
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return "";
  }
  ADD_FAILURE() << "no error for " << path << "; expected: " << part;
  return "";
}

}  // namespace garonne::data::testing
