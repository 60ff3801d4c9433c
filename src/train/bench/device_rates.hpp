// What a device does at its best, and what it reaches by the shape of products: what a planner
// without a profile goes by.
#pragma once

#include <cstdint>

#include "dist/session.hpp"
#include "plan/model/cluster.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {

struct DeviceRateOptions {
  double seconds_each = 0.2;  // for each thing that is measured
  // Of products by shape; 0: none, and products of 768 rows, columns and depth are the roof.
  std::int64_t largest_side = 0;
};

// Of one rank; the slowest of all.
struct DeviceRates {
  // Floating-point operations a second of the fastest product.
  double float32_flops = 0;
  double bfloat16_flops = 0;
  double float64_flops = 0;
  // Of products in bfloat16 on GPUs, else in float32.
  plan::ProductEfficiency products;
  double bytes_per_second = 0;  // read and written by a copy that no cache holds
  // Of the smallest kernel; the second is 0 where the host computes.
  double least_seconds = 0;
  double issue_seconds = 0;
};

// All ranks measure at once, since they share what a node has. On a GPU, kernels can be put into
// Compute, and no tier is in use. Collective.
DeviceRates measure_device_rates(dist::Session& session, RunDevice& device,
                                 const DeviceRateOptions& options = {});

}  // namespace garonne::train
