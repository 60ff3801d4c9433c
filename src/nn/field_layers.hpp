// Nodes that models on fields share. Values are [batch · points, channels], row-major.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "nn/field_network.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

// The window's channels and, with `coordinates`, one channel an axis that goes from 0 to 1 along it
// -> x · weightᵀ + bias [batch · points, outputs]. weight [outputs, channels (+ axes)], bias
// [outputs] where `bias`. Inputs: the window's values.
std::unique_ptr<Node> make_field_lift(const FieldShape& shape, std::int64_t batch,
                                      const FieldWindow& window, bool coordinates,
                                      std::int64_t outputs, bool bias = true);

// x [rows, channels] -> the exact GELU, x/2 · (1 + erf(x/√2)).
std::unique_ptr<Node> make_exact_gelu(std::int64_t rows, std::int64_t channels);

// x [rows, channels], skip [rows, channels], gate [channels] -> x + gate · skip
std::unique_ptr<Node> make_gated_add(std::int64_t rows, std::int64_t channels);

// prediction [batch · points, target_channels], target [rollout, batch, target_channels, points…]
// -> loss of step `step` of the rollout, a float64 scalar. `loss` is train.loss.
std::unique_ptr<Node> make_field_loss(const std::string& loss, const FieldShape& shape,
                                      std::int64_t batch, std::int64_t step);

// Float64 scalars -> their mean, a float64 scalar; the last node of a rollout.
std::unique_ptr<Node> make_mean_loss(std::int64_t losses);

}  // namespace garonne::nn
