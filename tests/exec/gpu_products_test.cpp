// Products of linear layers on a GPU, by each library, beside those of the processor in float64,
// and what they take of the tier.
#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>

#include "device/cuda_device.hpp"
#include "device/cuda_runtime.hpp"
#include "exec/device_tier.hpp"
#include "exec/gpu_library.hpp"
#include "exec/product_switches.hpp"
#include "kernels/session.hpp"
#include "nn/compute_session.hpp"
#include "nn/element_type.hpp"
#include "nn/gemm/product.hpp"
#include "nn/tensor_options.hpp"

namespace garonne::exec {
namespace {

constexpr std::int64_t tier_bytes = std::int64_t{256} << 20;

// The first GPU as a run has it, once for all tests.
class GpuProducts : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Before the libraries start.
    set_gpu_environment();
    runtime_ = device::make_cuda_runtime();
    int devices = 0;
    ASSERT_EQ(runtime_->device_count(devices), device::CudaStatus::Success);
    ASSERT_GT(devices, 0) << "this test is of a GPU";
    prepare_gpu_library();
    set_product_rounding(ProductRounding::Ieee);
    device_ = std::make_unique<device::CudaDevice>(*runtime_, device::CudaSettings());
    queue_ = device_->queue(Lane::Compute);
    use_gpu(queue_, 0);
    kernels_ = std::make_unique<kernels::StreamSession>(queue_);
    device_->reserve(Tier::Device, tier_bytes);
    tier_ = std::make_unique<DeviceTier>(device_->reserved(Tier::Device), DeviceKind::Cuda);
    scope_.emplace(*tier_);
    warm_up_gpu_library(queue_);
  }
  static void TearDownTestSuite() {
    if (scope_) {
      drop_gpu_workspaces();
      scope_.reset();
      tier_.reset();
      device_->release(Tier::Device);
    }
    kernels_.reset();
    device_.reset();
    runtime_.reset();
  }
  void SetUp() override { ASSERT_TRUE(scope_.has_value()) << "there is no GPU"; }

  static at::Tensor made(std::initializer_list<std::int64_t> sizes, at::ScalarType type) {
    return at::randn(sizes, nn::tensor_options(queue_, at::kFloat)).to(type);
  }
  static at::Tensor wide(const at::Tensor& tensor) { return tensor.cpu().to(at::kDouble); }

  // The most that a number is off.
  static double off(const at::Tensor& result, const at::Tensor& expected) {
    return (wide(result) - expected).abs().max().item<double>();
  }

  // Calls `check` for every library, precision and shape that it does.
  static void for_each(
      nn::ProductForm form,
      const std::function<void(const nn::Products&, const nn::ProductShape&)>& check) {
    for (const char* name : {"cuBLAS", "cuBLASLt"}) {
      const nn::ProductLibrary& library = *nn::find_product_library(name);
      ASSERT_TRUE(library.available()) << name;
      int done = 0;
      for (const Precision precision :
           {Precision::Float32, Precision::Float64, Precision::BFloat16}) {
        for (const auto& [rows, outputs, inputs] :
             {std::array<std::int64_t, 3>{512, 256, 128}, {1000, 96, 40}, {33, 17, 65}}) {
          const nn::ProductShape shape{form, rows, outputs, inputs, precision};
          if (!library.does(shape)) continue;
          SCOPED_TRACE(std::string(name) + " " + nn::product_key(shape));
          nn::Products products;
          products.choose(shape, library);
          check(products, shape);
          ++done;
        }
      }
      EXPECT_EQ(done, 9) << name;
      EXPECT_NE(at::globalContext().blasPreferredBackend(), at::BlasBackend::Cublaslt)
          << "the switch stays as it was";
    }
  }

  // Of sums of so many products of normal numbers. Where results are bfloat16 they are rounded
  // once, by 2^-8 of numbers that are hardly ever above 6 standard deviations.
  static double bound(const nn::ProductShape& shape, std::int64_t depth, bool rounded) {
    const double size = std::sqrt(static_cast<double>(depth));
    if (shape.precision == Precision::Float64) return 1e-13 * size;
    if (shape.precision == Precision::BFloat16 && rounded) return 6 * size / 256 + 1e-4 * size;
    return 1e-4 * size;
  }

  static inline std::unique_ptr<device::CudaRuntime> runtime_;
  static inline std::unique_ptr<device::CudaDevice> device_;
  static inline Queue queue_;
  static inline std::unique_ptr<kernels::StreamSession> kernels_;
  static inline std::unique_ptr<DeviceTier> tier_;
  static inline std::optional<DeviceScope> scope_;
};

TEST_F(GpuProducts, ForwardWithAndWithoutABiasByEveryLibrary) {
  for_each(nn::ProductForm::Forward, [&](const nn::Products& products,
                                         const nn::ProductShape& shape) {
    const at::ScalarType type = nn::compute_scalar_type(shape.precision);
    const at::Tensor x = made({shape.rows, shape.inputs}, type);
    const at::Tensor weight = made({shape.outputs, shape.inputs}, type);
    const at::Tensor row = made({shape.outputs}, type);
    const at::Tensor product = at::mm(wide(x), wide(weight).t());
    for (const bool with_bias : {false, true}) {
      const at::Tensor bias = with_bias ? row : at::Tensor();
      tier_->reset_peak();
      const at::Tensor y = products.forward(queue_, x, weight, bias);
      EXPECT_EQ(tier_->peak_bytes(), tier_->live_bytes()) << "with a bias: " << with_bias;
      const at::Tensor expected = with_bias ? product + wide(row) : product;
      // cuBLAS rounds the product, and the sum with the bias once more.
      EXPECT_LT(off(y, expected), 2 * bound(shape, shape.inputs + 1, true))
          << "with a bias: " << with_bias;
      if (with_bias) {
        EXPECT_GT(off(y, product), 0.5) << "the bias is there";
      }
      EXPECT_TRUE(at::equal(y, products.forward(queue_, x, weight, bias))) << "the same bits again";
    }
  });
}

TEST_F(GpuProducts, GradientsOfInputsByEveryLibrary) {
  for_each(nn::ProductForm::InputGradient, [&](const nn::Products& products,
                                               const nn::ProductShape& shape) {
    const at::ScalarType type = nn::compute_scalar_type(shape.precision);
    const at::Tensor gradient = made({shape.rows, shape.outputs}, type);
    const at::Tensor weight = made({shape.outputs, shape.inputs}, type);
    const at::Tensor product = at::mm(wide(gradient), wide(weight));
    for (const double scale : {1.0, 0.5}) {
      tier_->reset_peak();
      const at::Tensor result = products.input_gradient(queue_, gradient, weight, scale);
      EXPECT_EQ(tier_->peak_bytes(), tier_->live_bytes()) << scale;
      EXPECT_LT(off(result, product * scale), bound(shape, shape.outputs, true)) << scale;
      EXPECT_TRUE(at::equal(result, products.input_gradient(queue_, gradient, weight, scale)));
    }
  });
}

// In bfloat16 sums are float32: bfloat16 would round by 2^-8 of each number.
TEST_F(GpuProducts, GradientsOfWeightsAreAddedToSumsWithoutBytesBesideByEveryLibrary) {
  for_each(nn::ProductForm::WeightGradient,
           [&](const nn::Products& products, const nn::ProductShape& shape) {
             const at::ScalarType type = nn::compute_scalar_type(shape.precision);
             const at::Tensor gradient = made({shape.rows, shape.outputs}, type);
             const at::Tensor x = made({shape.rows, shape.inputs}, type);
             const at::Tensor start =
                 made({shape.outputs * shape.inputs}, nn::state_scalar_type(shape.precision));
             const at::Tensor product = at::mm(wide(gradient).t(), wide(x));
             for (const bool accumulate : {false, true}) {
               const at::Tensor target = start.clone();
               tier_->reset_peak();
               products.weight_gradient(queue_, gradient, x, target, accumulate, 0.5);
               EXPECT_EQ(tier_->peak_bytes(), tier_->live_bytes()) << accumulate;
               at::Tensor expected = product * 0.5;
               if (accumulate) expected += wide(start).view({shape.outputs, shape.inputs});
               EXPECT_LT(off(target.view({shape.outputs, shape.inputs}), expected),
                         bound(shape, shape.rows, false))
                   << accumulate;
               const at::Tensor again = start.clone();
               products.weight_gradient(queue_, gradient, x, again, accumulate, 0.5);
               EXPECT_TRUE(at::equal(target, again)) << "the same bits again";
             }
           });
}

// A library is asked for by name, whatever the environment prefers.
TEST_F(GpuProducts, ALibraryIsWhatItsNameSaysWhateverIsPreferred) {
  const nn::ProductShape shape{nn::ProductForm::InputGradient, 512, 256, 128, Precision::BFloat16};
  const at::Tensor gradient = made({shape.rows, shape.outputs}, at::kBFloat16);
  const at::Tensor weight = made({shape.outputs, shape.inputs}, at::kBFloat16);
  at::Context& context = at::globalContext();
  const at::BlasBackend before = context.blasPreferredBackend();
  for (const char* name : {"cuBLAS", "cuBLASLt"}) {
    nn::Products products;
    products.choose(shape, *nn::find_product_library(name));
    const at::Tensor plain = products.input_gradient(queue_, gradient, weight);
    for (const at::BlasBackend preferred : {at::BlasBackend::Cublas, at::BlasBackend::Cublaslt}) {
      context.setBlasPreferredBackend(preferred);
      EXPECT_TRUE(at::equal(plain, products.input_gradient(queue_, gradient, weight))) << name;
      EXPECT_EQ(context.blasPreferredBackend(), preferred) << name;
    }
    context.setBlasPreferredBackend(before);
  }
}

}  // namespace
}  // namespace garonne::exec
