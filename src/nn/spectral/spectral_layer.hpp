// The Fourier layer of a neural operator, without its activation.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/node.hpp"
#include "nn/spectral/spectral_contraction.hpp"
#include "nn/spectral/spectral_transform.hpp"

namespace garonne::nn {

// x [batch · points, inputs] -> x · skipᵀ + bias + the field of the contracted spectrum of x
// [batch · points, outputs].
// Parameters: skip [outputs, inputs], bias [outputs], those of the contraction. The spectrum is
// kept for the backward: the input is pinned for the gradient of the skip only. Transforms and
// contraction are in float32 where the compute type is bfloat16.
std::unique_ptr<Node> make_spectral_layer(std::int64_t batch, std::vector<std::int64_t> points,
                                          const Frequencies& frequencies, std::int64_t inputs,
                                          std::int64_t outputs,
                                          std::shared_ptr<const SpectralContraction> contraction);

}  // namespace garonne::nn
