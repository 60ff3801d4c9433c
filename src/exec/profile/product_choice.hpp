// Which library makes each product of a model the fastest.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/device.hpp"
#include "exec/device_tier.hpp"
#include "exec/profile/profile.hpp"
#include "nn/gemm/product.hpp"
#include "nn/model.hpp"

namespace garonne::exec {

// How long anything is measured: a table has many rows, and is kept for good.
inline constexpr double enough_seconds = 0.03;

// Small numbers, of which products stay finite.
at::Tensor random_tensor(const Queue& queue, std::vector<std::int64_t> shape, at::ScalarType type);

// What the nodes of a model multiply, each once.
std::vector<nn::ProductShape> product_shapes(const nn::Model& model, Precision precision);

// Chooses the fastest library of the queue's device that takes no more than nodes declare for it.
// `roof` becomes the operations a second of the fastest product where they are more. `gpu`: null on
// processors.
void choose_product(const Queue& queue, const nn::ProductShape& shape,
                    const nn::Declaration& declaration, DeviceTier& tier, nn::Products& products,
                    double& roof, const MeasuredGpu* gpu);

}  // namespace garonne::exec
