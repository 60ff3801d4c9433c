// The program that reads for another one, and what is said of how it ended.
#include "data/hdf5/foreign_reader.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "data/hdf5/foreign_files.hpp"
#include "data/scratch.hpp"

namespace garonne::data {
namespace {

using testing::Scratch;

TEST(ForeignReader, SaysHowItsProgramEnded) {
  const Scratch scratch;
  const auto program = [&](const std::string& name, const std::string& script) {
    const std::string path = scratch.write(name, "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  };
  const auto ask = [](ForeignReader& reader) {
    reader.ask(ForeignKind::AttributeTexts, "x.h5", "/", "name", "attribute \"name\"");
  };
  ForeignReader crashes(program("crash", "kill -SEGV $$"));
  testing::expect_io_error("x.h5", "attribute \"name\" cannot be read: HDF5 crashed with signal 11",
                           [&] { ask(crashes); });
  // And again: the next one is started.
  testing::expect_io_error("x.h5", "signal 11", [&] { ask(crashes); });
  ForeignReader hangs(program("hang", "exec sleep 1000"), 0.2);
  testing::expect_io_error("x.h5", "HDF5 found no end", [&] { ask(hangs); });
  ForeignReader leaves(program("leave", "exit 3"));
  testing::expect_io_error("x.h5", "HDF5 ended", [&] { ask(leaves); });
  ForeignReader hurries(program("hurry", "test $1 = 0.25 && kill -PROF $$"), 30, 0.25);
  testing::expect_io_error("x.h5", "HDF5 found no end", [&] { ask(hurries); });
  ForeignReader absent(scratch.path("absent"));
  testing::expect_io_error("x.h5", "cannot start", [&] { ask(absent); });
  // Answers that are too long are not believed.
  ForeignReader lies(
      program("lie", "printf '\\000\\000\\000\\000\\377\\377\\377\\377\\377\\377\\377\\377' >&0"));
  testing::expect_io_error("x.h5", "cannot be read", [&] { ask(lies); });
  // What it says of a process of its own.
  ForeignReader tells(
      program("tell", "printf '\\003\\000\\000\\000\\013\\000\\000\\000' >&0; exec sleep 1000"));
  testing::expect_io_error("x.h5", "HDF5 crashed with signal 11", [&] { ask(tells); });
  ForeignReader loops(
      program("loop", "printf '\\003\\000\\000\\000\\033\\000\\000\\000' >&0; exec sleep 1000"));
  testing::expect_io_error("x.h5", "HDF5 found no end", [&] { ask(loops); });
}

// The processes that `process` started.
std::vector<pid_t> children_of(pid_t process) {
  std::ifstream list(fmt::format("/proc/{0}/task/{0}/children", process));
  return {std::istream_iterator<pid_t>(list), std::istream_iterator<pid_t>()};
}

// A crash takes the process that reads with it, and not the program that was started: the next file
// need not wait for another one.
TEST(ForeignReader, OutlivesACrash) {
  const Scratch scratch;
  testing::write_foreign_netcdf(scratch.path("one.nc"));
  testing::write_foreign_netcdf(scratch.path("two.nc"));
  const std::vector<pid_t> before = children_of(getpid());
  ForeignReader reader;
  EXPECT_EQ(reader.try_structure(scratch.path("one.nc")), "");
  std::vector<pid_t> programs;
  for (const pid_t child : children_of(getpid())) {
    if (std::find(before.begin(), before.end(), child) == before.end()) programs.push_back(child);
  }
  ASSERT_EQ(programs.size(), 1U);
  const std::vector<pid_t> readers = children_of(programs[0]);
  ASSERT_EQ(readers.size(), 1U);
  // Not one that sanitizers take for themselves.
  ASSERT_EQ(kill(readers[0], SIGABRT), 0);
  testing::expect_io_error(scratch.path("one.nc"),
                           "its structure cannot be read: HDF5 crashed with signal 6",
                           [&] { reader.try_structure(scratch.path("one.nc")); });
  EXPECT_EQ(reader.try_structure(scratch.path("one.nc")), "");
  // Of what happens between files none is to blame.
  ASSERT_EQ(children_of(programs[0]).size(), 1U);
  ASSERT_EQ(kill(children_of(programs[0])[0], SIGABRT), 0);
  EXPECT_EQ(reader.try_structure(scratch.path("two.nc")), "");
  EXPECT_EQ(children_of(programs[0]).size(), 1U);
}

// Nothing is left to whoever takes what others leave, also where it is in the middle of an answer.
TEST(ForeignReader, LeavesNoProcess) {
  const Scratch scratch;
  testing::write_foreign_netcdf(scratch.path("whole.nc"));
  ASSERT_EQ(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const std::vector<pid_t> before = children_of(getpid());
  {
    ForeignReader reader;
    EXPECT_EQ(reader.try_structure(scratch.path("whole.nc")), "");
    ForeignReader hurried("", 0.0);
    testing::expect_io_error(scratch.path("whole.nc"), "HDF5 found no end",
                             [&] { hurried.try_structure(scratch.path("whole.nc")); });
  }
  EXPECT_EQ(children_of(getpid()), before);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
}

// As many as one process reads, and some more.
TEST(ForeignReader, ReadsManyFiles) {
  const Scratch scratch;
  testing::write_foreign_netcdf(scratch.path("whole.nc"));
  testing::write_foreign_netcdf(scratch.path("other.nc"));
  ForeignReader reader;
  for (int file = 0; file < 150; ++file) {
    ASSERT_EQ(reader.try_structure(scratch.path(file % 2 == 0 ? "whole.nc" : "other.nc")), "");
  }
}

}  // namespace
}  // namespace garonne::data
