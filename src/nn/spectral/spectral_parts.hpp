// The Fourier layer of a neural operator in parts, for fields that are cut over a tensor group: the
// transform of a member's rows, the contraction of its modes, the field of all modes on its rows.
// nn/spectral/spectral_layer.hpp is all of them in one; nn/spectral/spectrum_collectives.hpp goes
// between.
#pragma once

#include <cstdint>
#include <memory>

#include "nn/node.hpp"
#include "nn/spectral/spectral_contraction.hpp"
#include "nn/spectral/spectral_transform.hpp"

namespace garonne::nn {

// x [batch · points, channels] -> its spectrum [batch, 2, modes, channels] of the state type.
std::unique_ptr<Node> make_spectral_analysis(std::shared_ptr<const SpectralTransform> transform,
                                             std::int64_t batch, std::int64_t points,
                                             std::int64_t channels);

// spectrum [batch, 2, modes, inputs] -> [batch, 2, modes, outputs]; the parameters are those of the
// contraction.
std::unique_ptr<Node> make_spectral_contraction(
    const ContractionSizes& sizes, std::shared_ptr<const SpectralContraction> contraction);

// x [batch · points, inputs], spectrum [batch, 2, modes, outputs], skip [outputs, inputs], bias
// [outputs] -> x · skipᵀ + bias + the field of the spectrum [batch · points, outputs].
std::unique_ptr<Node> make_spectral_synthesis(std::shared_ptr<const SpectralTransform> transform,
                                              std::int64_t batch, std::int64_t points,
                                              std::int64_t inputs, std::int64_t outputs);

}  // namespace garonne::nn
