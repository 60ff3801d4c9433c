// SPDX-License-Identifier: MIT
// Two OpenMP run times in one process fight for the cores: every product then waits for the
// spinning threads of the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <ATen/Parallel.h>
#include <torch/torch.h>

#include <atomic>
#include <fstream>
#include <set>
#include <string>

namespace {

// Paths of the loaded files whose name has one of OpenMP's run times in it.
std::set<std::string> loaded_openmp_libraries() {
  std::set<std::string> paths;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto slash = line.find('/');
    if (slash == std::string::npos) continue;
    const std::string path = line.substr(slash);
    for (const char* name : {"/libgomp", "/libiomp", "/libomp."}) {
      if (path.find(name) != std::string::npos) paths.insert(path);
    }
  }
  return paths;
}

TEST(OneLibgomp, IsLoadedOnce) {
  // Work for torch's threads and for our own, so that whatever opens late has been opened.
  const auto product = at::mm(at::ones({256, 256}), at::ones({256, 256}));
  EXPECT_EQ(product[0][0].item<float>(), 256.0F);
#pragma omp parallel
  { EXPECT_GE(omp_get_thread_num(), 0); }
  EXPECT_THAT(loaded_openmp_libraries(), testing::SizeIs(1));
}

TEST(OneLibgomp, ParallelForOfTorchIsParallelInOurSources) {
  at::set_num_threads(2);
  std::atomic<int> calls = 0;
  at::parallel_for(0, 1000, 1, [&](int64_t, int64_t) { ++calls; });
  EXPECT_EQ(calls, 2);
}

}  // namespace
