// Products of linear layers on a GPU beside those of the processor in float64, and what they take
// of the tier.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>

#include "device/cuda_device.hpp"
#include "device/cuda_runtime.hpp"
#include "exec/device_tier.hpp"
#include "exec/gpu_library.hpp"
#include "nn/gemm/product.hpp"
#include "nn/tensor_options.hpp"

namespace garonne::exec {
namespace {

TEST(GpuProducts, GradientsOfWeightsInBfloat16AreSummedInFloat32WithoutBytesBeside) {
  const auto runtime = device::make_cuda_runtime();
  int devices = 0;
  ASSERT_EQ(runtime->device_count(devices), device::CudaStatus::Success);
  ASSERT_GT(devices, 0) << "this test is of a GPU";
  prepare_gpu_library();
  device::CudaDevice device(*runtime, {});
  const Queue queue = device.queue(Lane::Compute);
  use_gpu(queue, 0);
  device.reserve(Tier::Device, std::int64_t{256} << 20);
  {
    DeviceTier tier(device.reserved(Tier::Device), DeviceKind::Cuda);
    const DeviceScope scope(tier);
    warm_up_gpu_library(queue);
    const nn::Products products;
    for (const auto& [rows, outputs, inputs] :
         {std::array<std::int64_t, 3>{512, 256, 128}, {1000, 96, 40}, {33, 17, 65}}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << outputs << " x " << inputs);
      const auto made = [&](std::int64_t columns) {
        return at::randn({rows, columns}, nn::tensor_options(queue, at::kFloat)).to(at::kBFloat16);
      };
      const at::Tensor gradient = made(outputs);
      const at::Tensor x = made(inputs);
      const at::Tensor start = at::randn({outputs * inputs}, nn::tensor_options(queue, at::kFloat));
      const at::Tensor wanted = at::mm(gradient.cpu().to(at::kDouble).t(), x.cpu().to(at::kDouble));
      for (const bool accumulate : {false, true}) {
        const at::Tensor target = start.clone();
        tier.reset_peak();
        products.weight_gradient(queue, gradient, x, target, accumulate, 0.5);
        EXPECT_EQ(tier.peak_bytes(), tier.live_bytes());
        at::Tensor expected = wanted * 0.5;
        if (accumulate) expected += start.cpu().to(at::kDouble).view({outputs, inputs});
        // Of products in float32; bfloat16 would round by 2^-9 of each number.
        const at::Tensor off =
            (target.cpu().to(at::kDouble).view({outputs, inputs}) - expected).abs();
        EXPECT_LT(off.max().item<double>(), 1e-5 * std::sqrt(static_cast<double>(rows)) * 10);
      }
    }
    drop_gpu_workspaces();
  }
  device.release(Tier::Device);
}

}  // namespace
}  // namespace garonne::exec
