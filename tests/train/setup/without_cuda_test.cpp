// What run.device comes to in builds without CUDA, of which alone this is a test.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "exec/gpu_library.hpp"
#include "train/setup/on_device.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {
namespace {

TEST(WithoutCuda, AutoIsTheProcessorAndCudaIsRefused) {
  ASSERT_FALSE(exec::built_with_cuda());
  EXPECT_EQ(device_kind(on("auto")), DeviceKind::Cpu);
  EXPECT_NO_THROW(expect_device_built(on("auto")));
  EXPECT_THROW(expect_device_built(on("cuda")), NotBuiltError);
  dist::Session alone = dist::Session::single();
  EXPECT_THROW(RunDevice(on("cuda"), alone), dist::AgreedError);
  EXPECT_EQ(RunDevice(on("auto"), alone).text(),
            "run.device = auto: cpu, since this build has no CUDA\n");
}

// Of every kind of model: what a node has on a device is no question of the kind.
TEST(WithoutCuda, ModelsOfFieldsAreRefusedAsAllOthersAre) {
  dist::Session alone = dist::Session::single();
  std::vector<std::string> said;
  for (const char* const kind : {"gpt", "fno", "sfno", "afno"}) {
    RunConfig config = on("cuda");
    config.model.kind = kind;
    try {
      RunDevice device(config, alone);
      ADD_FAILURE() << kind << " has a GPU in a build without";
    } catch (const dist::AgreedError& error) {
      said.emplace_back(error.what());
    }
  }
  ASSERT_EQ(said.size(), 4U);
  for (const std::string& text : said) EXPECT_EQ(text, said.front());
}

}  // namespace
}  // namespace garonne::train
