#include "nn/gemm/onednn_workspace.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <omp.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "base/bytes.hpp"
#include "base/error.hpp"
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
class UnwrittenMemory {
 public:
  explicit UnwrittenMemory(std::int64_t bytes) {
    if (map(bytes)) return;
#if defined(__x86_64__)
    // Where the process may have no more addresses, a product that asks for a workspace does not
    // come to look at them. That all of this size do where one does has been seen here alone.
    if (map(1)) return;
#endif
    throw RefusedError(fmt::format(
        "the process may not have {} bytes ({}) of addresses more, in which nothing would be "
        "written, to find what a bfloat16 product takes: raise ulimit -v or have smaller tensors",
        bytes, format_bytes(bytes)));
  }
  ~UnwrittenMemory() {
    munmap(data_, bytes_);
  }
  UnwrittenMemory(const UnwrittenMemory&) = delete;
  UnwrittenMemory& operator=(const UnwrittenMemory&) = delete;

  at::Tensor matrix(std::int64_t rows, std::int64_t columns, bool transposed = false) const {
    const auto options = host_tensor_options(at::kBFloat16);
    return transposed ? at::from_blob(data_, {columns, rows}, options).t()
                      : at::from_blob(data_, {rows, columns}, options);
  }

 private:
  bool map(std::int64_t bytes) {
    bytes_ = static_cast<std::size_t>(bytes);
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return data_ != MAP_FAILED;
  }

  std::size_t bytes_ = 0;
  void* data_ = nullptr;
};

std::vector<std::int64_t> blocks_of(const BFloat16Product& product) {
  const auto [m, n, k, transposed_left, transposed_right] = product;
  // All three in the same place: nobody looks at what they are.
  const UnwrittenMemory memory(std::max({m * k, k * n, m * n, std::int64_t{1}}) * 2);
  const at::Tensor left = memory.matrix(m, k, transposed_left);
  const at::Tensor right = memory.matrix(k, n, transposed_right);
  at::Tensor out = memory.matrix(m, n);
  // Scaled and added to what is there: no product takes more.
  return blocks_until(small_block_bytes,
                      [&] { at::addmm_out(out, out, left, right, /*beta=*/1, /*alpha=*/0.5); });
}

}  // namespace

std::int64_t float32_workspace_bytes(const Declaration& declaration, std::int64_t inputs) {
  const std::int64_t right = declaration.allocation(64 * round_up(inputs, 32) * 4);
  return declaration.threads * (right + descriptor_bytes) + part_alignment_bytes;
}

std::int64_t bfloat16_workspace_bytes(const Declaration& declaration,
                                      const BFloat16Product& product) {
  const ThreadScope threads(declaration.threads);
  // Without the instructions, or told not to use them (ONEDNN_MAX_CPU_ISA), the library multiplies
  // by loops that take nothing, and a large product would be carried out.
  constexpr BFloat16Product small{.m = 64, .n = 64, .k = 64};
  const bool is_large = product.m * product.n * product.k > small.m * small.n * small.k;
  if (is_large && blocks_of(small).empty()) return 0;
  std::int64_t bytes = 0;
  for (const std::int64_t block : blocks_of(product)) bytes += declaration.allocation(block);
  return bytes;
}

}  // namespace garonne::nn
