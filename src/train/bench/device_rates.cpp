#include "train/bench/device_rates.hpp"

#include <ATen/Functions.h>

#include <algorithm>

#include "base/device.hpp"
#include "device/cpu_device.hpp"
#include "exec/profile/timing.hpp"
#include "nn/element_type.hpp"
#include "nn/gemm/product.hpp"
#include "train/setup/cluster.hpp"

namespace garonne::train {
namespace {

constexpr std::int64_t product_size = 768;
constexpr std::int64_t copy_bytes = std::int64_t{1} << 27;
constexpr double enough_seconds = 0.2;

double product_flops(const Queue& queue, Precision precision) {
  const nn::ProductShape shape{nn::ProductForm::Forward, product_size, product_size, product_size,
                               precision};
  const auto type = nn::compute_scalar_type(precision);
  const at::Tensor x = at::randn({product_size, product_size}).to(type);
  const at::Tensor weight = at::randn({product_size, product_size}).to(type);
  double best = 0;
  for (const nn::ProductLibrary* library : nn::product_candidates(shape, queue.device)) {
    nn::Products products;
    products.choose(shape, *library);
    const exec::WorkSeconds taken = exec::shortest_seconds(
        enough_seconds, [&] { products.forward(queue, x, weight, at::Tensor()); });
    best = std::max(best, 2.0 * product_size * product_size * product_size / taken.seconds);
  }
  return best;
}

double copy_rate() {
  const at::Tensor from = at::ones({copy_bytes / 4});
  at::Tensor to = at::zeros({copy_bytes / 4});
  return 2.0 * static_cast<double>(copy_bytes) /
         exec::shortest_seconds(enough_seconds, [&] { to.copy_(from); }).seconds;
}

}  // namespace

DeviceRates measure_device_rates(dist::Session& session) {
  const device::CpuDevice processor;
  std::vector<double> rates;
  for (const Precision precision : {Precision::Float32, Precision::BFloat16, Precision::Float64}) {
    session.barrier();
    rates.push_back(product_flops(processor.queue(Lane::Compute), precision));
  }
  session.barrier();
  rates.push_back(copy_rate());
  rates = session.all_reduce_min(rates);
  return {rates[0], rates[1], rates[2], rates[3]};
}

}  // namespace garonne::train
