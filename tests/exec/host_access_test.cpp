// The host does not touch the memory of a GPU while it puts a step there: whole steps whose tier is
// mapped without access outside nodes, kernels and copies, which ends who tries.
#include <ATen/Functions.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <memory>
#include <string>
#include <string_view>

#include "exec/cuda_ranks.hpp"
#include "nn/compute_session.hpp"

namespace garonne::exec {
namespace {

// Operations of the tensor library that hand the host a number.
bool reads_for_the_host(std::string_view operation) {
  return operation == "aten::item" || operation == "aten::_local_scalar_dense" ||
         operation == "aten::is_nonzero" || operation == "aten::equal";
}

struct Operation final : at::ObserverContext {
  explicit Operation(HostKernels& device) : reached(device) {}
  HostKernels::Reached reached;
};

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& operation) {
  HostKernels* const device = HostKernels::guarded();
  if (device == nullptr || reads_for_the_host(operation.name())) return nullptr;
  return std::make_unique<Operation>(*device);
}

void end(const at::RecordFunction&, at::ObserverContext*) {}

class HostAccess : public testing::TestWithParam<const char*> {
 protected:
  HostAccess()
      : callback_(at::addGlobalCallback(
            at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION}))) {}
  ~HostAccess() override { at::removeCallback(callback_); }

 private:
  const at::CallbackHandle callback_;
};

TEST_P(HostAccess, IsNotNeededForAStep) {
  for (const Precision precision : {Precision::Float32, Precision::BFloat16, Precision::Float64}) {
    const Setting setting{precision, GetParam()};
    CpuRank cpu(setting);
    GpuRank gpu(setting, {.delay_seed = 7});
    cpu.watches = gpu.watches = false;
    gpu.device().guard();
    for (std::int64_t number = 1; number <= 2; ++number) {
      EXPECT_EQ(cpu.step(number).loss, gpu.step(number).loss);
      EXPECT_EQ(cpu.evaluate(), gpu.evaluate());
    }
    EXPECT_EQ(cpu.state(), gpu.state());
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, HostAccess, testing::Values("keep-all", "full", "selective"));

// An executor that did.
class HostAccessDeathTest : public HostAccess {};

TEST_P(HostAccessDeathTest, EndsWhoReadsBesideKernels) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::string how = GetParam();
  const auto read = [&] {
    GpuRank gpu({});
    gpu.watches = false;
    gpu.device().guard();
    at::Tensor tensor;
    {
      const DeviceScope scope(gpu.tier());
      tensor = at::zeros({1}, at::kDouble);
    }
    gpu.before = [&] {
      double sum = 0;
      if (how == "item") sum += tensor.item<double>();
      if (how == "address") sum += *tensor.const_data_ptr<double>();
      if (sum > 1) std::abort();
    };
    gpu.step(1);
  };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // Which say what happened, and exit by themselves.
  const auto failed = [](int status) { return WIFEXITED(status) && WEXITSTATUS(status) != 0; };
  EXPECT_EXIT(read(), failed, "Sanitizer: SEGV");
#else
  EXPECT_EXIT(read(), testing::KilledBySignal(SIGSEGV), "");
#endif
}

INSTANTIATE_TEST_SUITE_P(Ways, HostAccessDeathTest, testing::Values("item", "address"));

}  // namespace
}  // namespace garonne::exec
