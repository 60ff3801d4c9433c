// Files that are whole or absent, and their hashes.
#include "base/file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/partial_file.hpp"

namespace garonne {
namespace {

namespace fs = std::filesystem;

// A folder of its own for each test, removed at the end.
class Files : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              ("garonne_files_" +
               std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()) + "_" +
               std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

template <typename Action>
void expect_io_error(const std::string& path, Action action) {
  try {
    action();
  } catch (const IoError& error) {
    EXPECT_EQ(error.path(), path);
    EXPECT_EQ(error.code(), ExitCode::Data);
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos) << error.what();
    return;
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
    return;
  }
  ADD_FAILURE() << "no error for " << path;
}

std::string text_of(std::size_t bytes) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 31 + i / 251);
  return text;
}

TEST_F(Files, HashesOfTextFileAndWriterAgree) {
  // Around the block that hash_file reads at once.
  for (const std::size_t bytes :
       {0UL, 1UL, 240UL, 241UL, 65536UL, 1048575UL, 1048576UL, 3000001UL}) {
    const std::string text = text_of(bytes);
    FileWriter writer(path("a"));
    for (std::size_t begin = 0, piece = 1; begin < bytes; begin += piece, piece = piece * 3 + 1) {
      piece = std::min(piece, bytes - begin);
      writer.write(text.data() + begin, piece);
    }
    const std::string hash = writer.finish();
    EXPECT_EQ(hash.size(), 32U);
    EXPECT_EQ(hash, hash_file(path("a"))) << bytes;
    EXPECT_EQ(hash, hash_text(text)) << bytes;
    EXPECT_EQ(read_text_file(path("a")), text) << bytes;
  }
}

TEST_F(Files, HashOfNothingIsThePublishedOne) {
  EXPECT_EQ(hash_text(""), "99aa06d3014798d86001c324468d497f");
}

TEST_F(Files, HashChangesWithEveryByte) {
  std::string text = text_of(5000);
  const std::string before = hash_text(text);
  for (std::size_t i = 0; i < text.size(); i += 97) {
    text[i] = static_cast<char>(text[i] ^ 1);
    EXPECT_NE(hash_text(text), before) << i;
    text[i] = static_cast<char>(text[i] ^ 1);
  }
  EXPECT_EQ(hash_text(text), before);
}

TEST_F(Files, DurableWritesReplaceWholeFilesAndLeaveNothingBeside) {
  write_file_durably(path("a"), "first, and the longer one");
  EXPECT_EQ(read_text_file(path("a")), "first, and the longer one");
  write_file_durably(path("a"), "second");
  EXPECT_EQ(read_text_file(path("a")), "second");
  write_file_durably(path("a"), "");
  EXPECT_EQ(read_text_file(path("a")), "");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(Files, WhatLiesBesideIsInNobodysWay) {
  std::ofstream(path("a.partial")) << "half of a much longer text than the one that follows";
  write_file_durably(path("a"), "whole");
  EXPECT_EQ(read_text_file(path("a")), "whole");
  EXPECT_EQ(entries(), 2U);
}

TEST_F(Files, AFailingDurableWriteLeavesTheOldFileAndNothingElse) {
  // A name that is taken by a folder cannot be replaced.
  fs::create_directory(path("a"));
  std::ofstream(path("a/in_it")) << "old";
  expect_io_error(path("a"), [&] { write_file_durably(path("a"), "new"); });
  EXPECT_EQ(read_text_file(path("a/in_it")), "old");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(Files, LinksAreNotWrittenThrough) {
  std::ofstream(path("of_another")) << "kept";
  fs::create_symlink(path("of_another"), path("a"));
  expect_io_error(path("a"), [&] { FileWriter writer(path("a")); });
  write_file_durably(path("a"), "new");  // takes the name from the link
  EXPECT_EQ(read_text_file(path("of_another")), "kept");
  EXPECT_EQ(read_text_file(path("a")), "new");
}

TEST_F(Files, PartialFilesHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (int i = 0; i < 20; ++i) {
    PartialFile partial(path("a"));
    EXPECT_EQ(partial.path().rfind(path("a.partial-"), 0), 0U);
    EXPECT_TRUE(names.insert(partial.path()).second);
    EXPECT_EQ(entries(), 1U);
  }
  EXPECT_EQ(entries(), 0U);
  PartialFile first(path("a"));
  PartialFile second(path("a"));
  std::ofstream(first.path()) << "first";
  std::ofstream(second.path()) << "second";
  second.publish();
  first.publish();
  EXPECT_EQ(read_text_file(path("a")), "first");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(Files, WhatIsNoRegularFileIsRefusedAtOnce) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  for (const std::string& name : {path("pipe"), std::string("/dev/zero"), folder_.string()}) {
    expect_io_error(name, [&] { read_text_file(name); });
    expect_io_error(name, [&] { FileReader reader(name); });
    expect_io_error(name, [&] { hash_file(name); });
    EXPECT_THROW(read_given_file(name, "give a file"), ConfigError) << name;
  }
}

TEST_F(Files, AFileThatIsNotThereIsTakenForOneOfANearName) {
  write_file_durably(path("gpt_small.toml"), "");
  fs::create_directories(path("gpt_smell.toml"));
  const auto refusal = [&](const std::string& name) {
    try {
      read_given_file(path(name), "give a run file");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("it was read");
  };
  EXPECT_NE(refusal("gpt_smal.toml").find("did you mean " + path("gpt_small.toml") + "?"),
            std::string::npos);
  EXPECT_NE(refusal("llama.toml").find("give a run file"), std::string::npos);
  // Folders are no files, and what is there is not what was mistyped.
  EXPECT_EQ(refusal("gpt_smell.toml").find("did you mean"), std::string::npos);
  EXPECT_NE(refusal("no/gpt_small.toml").find("give a run file"), std::string::npos);
}

TEST_F(Files, WhatIsTooLargeIsRefusedBeforeItIsRead) {
  std::ofstream(path("a")) << "0123456789";
  EXPECT_EQ(read_text_file(path("a"), 10), "0123456789");
  expect_io_error(path("a"), [&] { read_text_file(path("a"), 9); });
  fs::resize_file(path("a"), std::uintmax_t{6} << 30);  // with a hole
  expect_io_error(path("a"), [&] { read_text_file(path("a")); });
  try {
    read_given_file(path("a"), "give a run file", most_toml_bytes);
    ADD_FAILURE() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), ExitCode::Usage);
    EXPECT_EQ(std::string(error.what()),
              path("a") + ": has 6.00 GiB, and such a file has at most 1.00 MiB; give a run file");
  }
}

TEST_F(Files, ErrorsNameThePath) {
  expect_io_error(path("none/a"), [&] { FileWriter writer(path("none/a")); });
  expect_io_error(path("none"), [&] { FileReader reader(path("none")); });
  expect_io_error(folder_.string(), [&] { FileReader reader(folder_.string()); });
  expect_io_error(path("none"), [&] { hash_file(path("none")); });
  expect_io_error(folder_.string(), [&] { hash_file(folder_.string()); });
  expect_io_error(path("none"), [&] { sync_directory(path("none")); });
}

TEST_F(Files, ReadsAtPositionsAndNotBeyondTheEnd) {
  std::ofstream(path("a")) << "0123456789";
  const FileReader reader(path("a"));
  EXPECT_EQ(reader.size(), 10);
  std::string three(3, ' ');
  reader.read(4, three.data(), 3);
  EXPECT_EQ(three, "456");
  reader.read(7, three.data(), 3);
  EXPECT_EQ(three, "789");
  expect_io_error(path("a"), [&] { reader.read(8, three.data(), 3); });
}

}  // namespace
}  // namespace garonne
