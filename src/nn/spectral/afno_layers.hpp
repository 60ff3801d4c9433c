// Nodes of adaptive Fourier neural operators. Spectra are values of the type of gradients (float32
// where the compute type is bfloat16), [batch, 2, modes, channels]: real parts, then imaginary.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/node.hpp"
#include "nn/spectral/spectral_transform.hpp"

namespace garonne::nn {

// The channels of a spectrum in equal runs, each with weights of its own.
struct SpectralBlocks {
  std::int64_t batch = 0;
  std::int64_t modes = 0;
  std::int64_t blocks = 0;
  std::int64_t size = 0;  // channels of a block
  std::int64_t elements() const { return batch * 2 * modes * blocks * size; }
};

enum class SpectralActivation {
  Relu,    // of real and imaginary parts apart
  Shrink,  // soft shrinkage of both apart
};

// x [batch · points, channels] -> its orthonormal transform at the frequencies of `transform`.
// `whole_points`: of all parts, where the field is cut.
std::unique_ptr<Node> make_orthonormal_analysis(std::shared_ptr<const SpectralTransform> transform,
                                                std::int64_t batch, std::int64_t points,
                                                std::int64_t whole_points, std::int64_t channels);

// spectrum, x [batch · points, channels] -> x + the field of the spectrum.
std::unique_ptr<Node> make_orthonormal_synthesis(std::shared_ptr<const SpectralTransform> transform,
                                                 std::int64_t batch, std::int64_t points,
                                                 std::int64_t whole_points, std::int64_t channels);

// spectrum, weight [2, blocks, size, size] (real and imaginary parts, [inputs, outputs] of a
// block), bias [2, blocks, size] -> activation(x · weight + bias) of complex numbers.
std::unique_ptr<Node> make_spectral_block_linear(const SpectralBlocks& sizes,
                                                 SpectralActivation activation, double threshold);

}  // namespace garonne::nn
