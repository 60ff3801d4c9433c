// What may be replaced where a user says to write.
#include "base/output_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"

namespace garonne {
namespace {

namespace fs = std::filesystem;

class Outputs : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("garonne_outputs_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name, const char* content = nullptr) const {
    const std::string made = (folder_ / name).string();
    if (content != nullptr) write_file_durably(made, content);
    return made;
  }
  // The reason; empty where it may be written.
  static std::string refusal(const std::string& path, const OutputKind& kind,
                             const std::vector<std::string>& inputs = {}) {
    try {
      expect_output("--output", path, kind, inputs);
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key(), "--output");
      EXPECT_EQ(error.value(), path);
      EXPECT_EQ(error.code(), ExitCode::Usage);
      return error.reason();
    }
    return {};
  }

  fs::path folder_;
};

const OutputKind marked = text_output("a marked text", "# marked");
const OutputKind chain = json_output("a chain", {"x.chain", "x.sweep"});

TEST_F(Outputs, ReplaceTheirOwnKindAlone) {
  EXPECT_EQ(refusal(path("new"), marked), "");
  EXPECT_EQ(refusal(path("empty", ""), marked), "");
  EXPECT_EQ(refusal(path("own", "first\n# marked so\n"), marked), "");
  EXPECT_NE(refusal(path("other", "first\n"), marked).find("is not a marked text"),
            std::string::npos);
  std::string late(2000, ' ');
  late += "# marked";
  EXPECT_NE(refusal(path("late", late.c_str()), marked), "");
  EXPECT_EQ(refusal(path("spaced", "{\n \"format\": \"x.chain\",\n \"a\": 1}"), chain), "");
  EXPECT_EQ(refusal(path("dense", "{\"format\":\"x.sweep\"}"), chain), "");
  for (const char* text : {"{\"format\":\"x.chains\"}", "{\"a\":1,\"format\":\"x.chain\"}", "[]"})
    EXPECT_NE(refusal(path("none", text), chain), "") << text;
}

TEST_F(Outputs, AreNeverInputs) {
  const std::string own = path("own", "# marked");
  const std::string other = path("other", "# marked");
  fs::create_hard_link(own, path("hard"));
  fs::create_symlink(own, path("soft"));
  for (const std::string& name : {own, path("hard"), path("soft")}) {
    EXPECT_NE(refusal(name, marked, {"absent", other, own}).find("is what this command reads"),
              std::string::npos);
    EXPECT_EQ(refusal(name, marked, {"absent", other}), "");
  }
}

TEST_F(Outputs, AreRegularFiles) {
  EXPECT_NE(refusal(folder_.string(), marked).find("is a folder"), std::string::npos);
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_NE(refusal(path("pipe"), marked).find("no regular file"), std::string::npos);
  EXPECT_NE(refusal("/dev/null", marked).find("no regular file"), std::string::npos);
}

TEST_F(Outputs, HaveNamesThatPromiseNothingElse) {
  OutputKind netcdf = marked;
  netcdf.formats = {"netCDF", "HDF5"};
  for (const char* name : {"x.nc", "x.NC4", "x.h5", "x", "x.run7", "x.zarr.nc"})
    EXPECT_EQ(refusal(path(name), netcdf), "") << name;
  for (const auto& [name, format] : {std::pair{"x.zarr", "Zarr"}, std::pair{"x.GRIB2", "GRIB"},
                                     std::pair{"x.npy", "NumPy"}, std::pair{"x.json", "JSON"}}) {
    const std::string reason = refusal(path(name), netcdf);
    EXPECT_NE(reason.find(std::string("files of ") + format), std::string::npos) << reason;
    EXPECT_NE(reason.find("a marked text (netCDF or HDF5)"), std::string::npos) << reason;
  }
  EXPECT_EQ(refusal(path("x.zarr"), marked), "");
}

TEST_F(Outputs, TheFolderHasToTakeThem) {
  const OutputKind kind = text_output("a text of ours", "OURS");
  EXPECT_EQ(refusal(path("new"), kind), "");
  EXPECT_NE(refusal(path("missing/new"), kind).find("make it first"), std::string::npos);
  path("file", "OURS");
  EXPECT_NE(refusal(path("file/new"), kind).find("which is no folder"), std::string::npos);
  if (::geteuid() == 0) return;  // whom no rights hold off
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec);
  EXPECT_NE(refusal(path("new"), kind).find("takes no files"), std::string::npos);
  EXPECT_NE(refusal(path("file"), kind).find("takes no files"), std::string::npos);
  fs::permissions(folder_, fs::perms::owner_all);
}

}  // namespace
}  // namespace garonne
