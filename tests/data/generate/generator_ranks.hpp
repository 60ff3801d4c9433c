// What tests of generators share: a folder for all ranks, and what comes out on several and on one.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "base/hash.hpp"
#include "data/generate/generate_shallow_water.hpp"
#include "dist/session.hpp"

namespace garonne::data::test {

namespace fs = std::filesystem;

// One folder for all ranks, made by rank 0 and removed at the end.
class SharedScratch {
 public:
  explicit SharedScratch(dist::Session& session) : session_(session) {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string path;
    if (session.rank() == 0) {
      path = (fs::temp_directory_path() / ("garonne_generators_" + std::string(test->name()) + "_" +
                                           std::to_string(::getpid())))
                 .string();
      fs::remove_all(path);
      fs::create_directories(path);
    }
    path_ = session.broadcast(path);
  }
  ~SharedScratch() {
    if (session_.rank() == 0) fs::remove_all(path_);
  }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

 private:
  dist::Session& session_;
  std::string path_;
};

// Hashes of all files below a folder, by their path in it.
inline std::map<std::string, std::string> hashes(const std::string& folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      found[fs::relative(entry.path(), folder).string()] = hash_file(entry.path().string());
    }
  }
  return found;
}

// Runs `generate(session, folder)` on all ranks and on one; the same files must come out. Returns
// the folder of the first.
inline std::string expect_same_files(
    dist::Session& session, const SharedScratch& scratch,
    const std::function<void(dist::Session&, const std::string&)>& generate, std::size_t files) {
  const std::string together = scratch.path("together");
  const std::string alone = scratch.path("alone");
  if (session.rank() == 0) {
    fs::create_directories(together);
    fs::create_directories(alone);
  }
  session.barrier();
  generate(session, together);
  if (session.rank() == 0) {
    dist::Session single = dist::Session::single();
    // HDF5 would write the second at which an object was made.
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    generate(single, alone);
    EXPECT_EQ(hashes(together), hashes(alone));
    EXPECT_EQ(hashes(together).size(), files);
  }
  return together;
}

inline ShallowWaterGeneration small_shallow_water(const std::string& folder) {
  ShallowWaterGeneration generation;
  generation.output = folder;
  generation.latitudes = 12;
  generation.longitudes = 24;
  generation.trajectories = 4;
  generation.test_trajectories = 1;
  generation.trajectory_length = 3;
  generation.solver.step = 600;
  generation.show_progress = false;
  return generation;
}

}  // namespace garonne::data::test
