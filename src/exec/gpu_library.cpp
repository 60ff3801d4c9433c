#include "exec/gpu_library.hpp"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/core/Allocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>
#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

#include <array>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/error.hpp"
#include "exec/device_tier.hpp"
#include "nn/tensor_options.hpp"

namespace garonne::exec {
namespace {

// In the strict mode the tensor library insists on the first one. Results depend on the sizes.
constexpr std::array<std::pair<const char*, const char*>, 2> environment = {{
    {"CUBLAS_WORKSPACE_CONFIG", ":4096:8"},  // eight blocks of 4096 KiB for each handle and stream
    {"CUBLASLT_WORKSPACE_SIZE", "32768"},    // KiB
}};

void install_allocator() {
  namespace pluggable = torch::cuda::CUDAPluggableAllocator;
  // Streams are no matter of blocks: what is put on Compute later runs later.
  const auto allocator = pluggable::createCustomAllocator(
      [](std::size_t bytes, int, cudaStream_t) { return allocate_on_gpu(bytes); },
      [](void* block, std::size_t, int, cudaStream_t) { release_on_gpu(block); });
  pluggable::changeCurrentAllocator(allocator);
  // Which that does not change.
  c10::SetAllocator(c10::DeviceType::CUDA, allocator.get(), /*priority=*/100);
}

void set_switches() {
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);
  context.setAllowBF16ReductionCuBLAS(false);
  context.setAllowFP16ReductionCuBLAS(false);
  context.setAllowFP16AccumulationCuBLAS(false);
  context.setBenchmarkCuDNN(false);
  context.setSDPUseCuDNN(false);
}

}  // namespace

bool built_with_cuda() {
  return true;
}

void set_gpu_environment() {
  for (const auto& [name, value] : environment) setenv(name, value, /*overwrite=*/0);
}

void prepare_gpu_library() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const auto& [name, value] : environment) {
      expect(std::getenv(name) != nullptr,  // NOLINT(concurrency-*)
             fmt::format("{} is not set before the libraries of GPUs start", name));
    }
    install_allocator();
    set_switches();
  });
}

void use_gpu(const Queue& queue, int ordinal) {
  expect(queue.device == DeviceKind::Cuda && queue.native != nullptr,
         "tensors on a GPU without a stream of it");
  const auto device = static_cast<c10::DeviceIndex>(ordinal);
  c10::cuda::set_device(device);
  c10::cuda::setCurrentCUDAStream(
      c10::cuda::getStreamFromExternal(static_cast<cudaStream_t>(queue.native), device));
}

void warm_up_gpu_library(const Queue& queue) {
  const at::NoGradGuard no_gradients;
  constexpr std::int64_t size = 256;
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::TensorOptions options = nn::tensor_options(queue, type);
    const at::Tensor matrix = at::ones({size, size}, options);
    const at::Tensor row = at::ones({size}, options);
    static_cast<void>(at::mm(matrix, matrix));
    // Products with an epilogue are another library's, with a workspace of its own.
    static_cast<void>(at::addmm(row, matrix, matrix));
  }
}

void drop_gpu_workspaces() {
  at::cuda::clearCublasWorkspaces();
}

std::string gpu_environment_text() {
  std::string text;
  for (const auto& [name, value] : environment) {
    const char* const set = std::getenv(name);  // NOLINT(concurrency-*)
    text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, set == nullptr ? "" : set);
  }
  return text;
}

}  // namespace garonne::exec
