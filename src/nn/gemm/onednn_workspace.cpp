#include "nn/gemm/onednn_workspace.hpp"

#include <ATen/Functions.h>
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "base/bytes.hpp"
#include "nn/host_allocator.hpp"
#include "nn/tensor_options.hpp"

namespace garonne::nn {
namespace {

// oneDNN's descriptors of one product on one thread.
constexpr std::int64_t descriptor_bytes = 1152;
// What oneDNN takes beside each of the at most five parts of a product's workspace, to align it.
constexpr std::int64_t part_alignment_bytes = 5 * 128;

// What is beside a workspace, as a scale that is handed over as a tensor.
constexpr std::int64_t small_block_bytes = 512;

// oneDNN divides a product for as many threads as a region would have now.
class ThreadScope {
 public:
  explicit ThreadScope(int threads) : outer_(omp_get_max_threads()) {
    if (threads != outer_) omp_set_num_threads(threads);
  }
  ~ThreadScope() {
    if (omp_get_max_threads() != outer_) omp_set_num_threads(outer_);
  }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int outer_;
};

// Addresses, whose pages are there only once they are written.
class UnwrittenMatrix {
 public:
  UnwrittenMatrix(std::int64_t rows, std::int64_t columns, bool transposed)
      : bytes_(static_cast<std::size_t>(std::max<std::int64_t>(rows * columns * 2, 1))) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    const auto options = host_tensor_options(at::kBFloat16);
    matrix_ = transposed ? at::from_blob(data_, {columns, rows}, options).t()
                         : at::from_blob(data_, {rows, columns}, options);
  }
  ~UnwrittenMatrix() { munmap(data_, bytes_); }
  UnwrittenMatrix(const UnwrittenMatrix&) = delete;
  UnwrittenMatrix& operator=(const UnwrittenMatrix&) = delete;

  const at::Tensor& matrix() const { return matrix_; }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
  at::Tensor matrix_;
};

}  // namespace

std::int64_t float32_workspace_bytes(const Declaration& declaration, std::int64_t inputs) {
  const std::int64_t right = declaration.allocation(64 * round_up(inputs, 32) * 4);
  return declaration.threads * (right + descriptor_bytes) + part_alignment_bytes;
}

std::int64_t bfloat16_workspace_bytes(const Declaration& declaration,
                                      const BFloat16Product& product) {
  const auto [m, n, k, transposed_left, transposed_right] = product;
  const ThreadScope threads(declaration.threads);
  const UnwrittenMatrix left(m, k, transposed_left);
  const UnwrittenMatrix right(k, n, transposed_right);
  const UnwrittenMatrix result(m, n, /*transposed=*/false);
  at::Tensor out = result.matrix();
  // Scaled and added to what is there: no product takes more.
  const auto blocks = blocks_until(small_block_bytes, [&] {
    at::addmm_out(out, out, left.matrix(), right.matrix(), /*beta=*/1, /*alpha=*/0.5);
  });
  std::int64_t bytes = 0;
  for (const std::int64_t block : blocks) bytes += declaration.allocation(block);
  return bytes;
}

}  // namespace garonne::nn
