#include "train/bench/device_rates.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/device.hpp"
#include "device/cpu_device.hpp"
#include "exec/device_tier.hpp"
#include "exec/profile/timing.hpp"
#include "nn/element_type.hpp"
#include "nn/gemm/product.hpp"
#include "nn/tensor_options.hpp"
#include "train/setup/cluster.hpp"

namespace garonne::train {
namespace {

constexpr std::int64_t usual_side = 768;
constexpr std::int64_t least_side = 64;
// Libraries have faster ways for sizes of whole vectors.
constexpr std::int64_t vector_elements = 8;
constexpr std::int64_t copy_bytes = std::int64_t{1} << 27;
// An idle GPU has slow clocks, and takes a while to raise them.
constexpr double warm_up_seconds = 1;

class RateBench {
 public:
  RateBench(RunDevice& device, double seconds_each, std::int64_t largest_side)
      : seconds_each_(seconds_each), on_gpu_(device.kind() == DeviceKind::Cuda) {
    queue_ = on_gpu_ ? device.compute() : processor_.queue(Lane::Compute);
    if (!on_gpu_) return;
    const std::int64_t side = std::max(largest_side, usual_side);
    constexpr std::int64_t widest = 8;     // bytes of an element
    constexpr std::int64_t operands = 12;  // the largest, once more as float32, and workspaces
    tier_ = device.make_measuring_tier(operands * side * side * widest + 4 * copy_bytes);
    scope_.emplace(*tier_);
    stopwatch_ = exec::stopwatch_of(device.device());
    (void)flops({usual_side, usual_side, usual_side}, Precision::Float32, warm_up_seconds);
  }

  // Operations a second of the fastest library.
  double flops(const plan::ProductSize& size, Precision precision) {
    return flops(size, precision, seconds_each_);
  }

  double bytes_per_second() {
    const at::Tensor from = at::ones({copy_bytes / 4}, nn::tensor_options(queue_, at::kFloat));
    at::Tensor to = at::zeros_like(from);
    return 2.0 * static_cast<double>(copy_bytes) / shortest([&] { to.copy_(from); }).seconds;
  }

  exec::WorkSeconds smallest_kernel() {
    at::Tensor one = at::zeros({1}, nn::tensor_options(queue_, at::kFloat));
    return shortest([&] { one.add_(1); });
  }

  // That products by shape are in.
  Precision shaped() const { return on_gpu_ ? Precision::BFloat16 : Precision::Float32; }

 private:
  at::Tensor random_tensor(at::IntArrayRef shape, at::ScalarType type) const {
    return at::randn(shape, nn::tensor_options(queue_, at::kFloat)).to(type);
  }
  exec::WorkSeconds shortest(const std::function<void()>& work) {
    return exec::shortest_seconds(seconds_each_, work, stopwatch_);
  }

  double flops(const plan::ProductSize& size, Precision precision, double seconds) {
    const nn::ProductShape shape{nn::ProductForm::Forward, size.rows, size.columns, size.depth,
                                 precision};
    const auto type = nn::compute_scalar_type(precision);
    const at::Tensor x = random_tensor({size.rows, size.depth}, type);
    const at::Tensor weight = random_tensor({size.columns, size.depth}, type);
    const double operations = 2.0 * static_cast<double>(size.rows) *
                              static_cast<double>(size.columns) * static_cast<double>(size.depth);
    double best = 0;
    for (const nn::ProductLibrary* library : nn::product_candidates(shape, queue_.device)) {
      nn::Products products;
      products.choose(shape, *library);
      const auto multiply = [&] { products.forward(queue_, x, weight, at::Tensor()); };
      const exec::WorkSeconds taken = exec::shortest_seconds(seconds, multiply, stopwatch_);
      best = std::max(best, operations / taken.seconds);
    }
    return best;
  }

  const device::CpuDevice processor_;
  const double seconds_each_;
  const bool on_gpu_;
  Queue queue_;
  exec::Stopwatch stopwatch_ = exec::host_seconds;
  std::unique_ptr<exec::DeviceTier> tier_;
  std::optional<exec::DeviceScope> scope_;
};

// Cubes, and where they are four times as large, blocks that are long in one of three ways.
std::vector<plan::ProductSize> product_sizes(std::int64_t largest) {
  std::vector<plan::ProductSize> sizes;
  for (std::int64_t side = least_side; side <= largest; side *= 2) {
    sizes.push_back({side, side, side});
    const std::int64_t length = 4 * side;
    if (length > largest || side < 4 * least_side) continue;
    sizes.push_back({length, side, side});
    sizes.push_back({side, length, side});
    sizes.push_back({side, side, length});
  }
  return sizes;
}

}  // namespace

DeviceRates measure_device_rates(dist::Session& session, RunDevice& device,
                                 const DeviceRateOptions& options) {
  RateBench bench(device, options.seconds_each, options.largest_side);
  const std::int64_t largest = options.largest_side;
  const std::vector<plan::ProductSize> sizes = product_sizes(largest);
  // All ranks do the same at the same time.
  const auto together = [&](const auto& measure) {
    session.barrier();
    return session.all_reduce_min(std::vector<double>{measure()})[0];
  };
  const auto flops = [&](const plan::ProductSize& size, Precision precision) {
    return together([&] { return bench.flops(size, precision); });
  };
  DeviceRates rates;
  std::map<Precision, double> peaks;
  const std::int64_t side = largest > 0 ? largest : usual_side;
  for (const Precision precision : {Precision::Float32, Precision::BFloat16, Precision::Float64})
    peaks[precision] = flops({side, side, side}, precision);
  std::vector<double> by_shape;
  for (const plan::ProductSize& size : sizes) by_shape.push_back(flops(size, bench.shaped()));
  double& peak = peaks[bench.shaped()];
  for (const double rate : by_shape) peak = std::max(peak, rate);
  for (std::size_t k = 0; k < sizes.size(); ++k)
    rates.products.points.push_back({sizes[k], by_shape[k] / peak});
  if (!sizes.empty()) {
    const std::int64_t odd = side - 1;
    const double unaligned = flops({odd, odd, odd}, bench.shaped());
    const double aligned = flops({side, side, side}, bench.shaped());
    rates.products.alignment = vector_elements;
    rates.products.unaligned = std::min(1.0, unaligned / aligned);
  }
  rates.float32_flops = peaks[Precision::Float32];
  rates.bfloat16_flops = peaks[Precision::BFloat16];
  rates.float64_flops = peaks[Precision::Float64];
  rates.bytes_per_second = together([&] { return bench.bytes_per_second(); });
  session.barrier();
  const exec::WorkSeconds smallest = bench.smallest_kernel();
  const std::vector<double> least =
      session.all_reduce_max(std::vector<double>{smallest.seconds, smallest.issue_seconds});
  rates.least_seconds = least[0];
  rates.issue_seconds = least[1];
  return rates;
}

}  // namespace garonne::train
