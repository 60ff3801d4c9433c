// The product over channels that a spectral layer does for each mode, with dense or factorised
// weights.
//
// Complex numbers are pairs of reals: parameters have a last dimension of 2, so that buckets, ZeRO
// shards, norms and checkpoints are those of real numbers; spectra are [batch, 2, modes, channels]
// (nn/spectral/spectral_transform.hpp). Complex products are real products of twice the columns
// followed by one sum.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/allocation_sketch.hpp"
#include "nn/model.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

struct ContractionSizes {
  std::int64_t batch = 0;
  std::vector<std::int64_t> kept;  // modes along each axis
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
  // Where a tensor group has the modes of the first axis in pieces of `kept`: how many there are.
  std::int64_t whole_first = 0;

  std::int64_t modes() const;
  std::vector<std::int64_t> whole() const;  // modes along each axis, of all pieces
};

struct ContractionParameter {
  std::string name;  // the last part of it, as "weight"
  std::vector<std::int64_t> shape;
  Initialisation initialisation;
  bool by_first_axis = false;  // its first dimension is the modes of the first axis
};

class SpectralContraction {
 public:
  virtual ~SpectralContraction() = default;

  virtual std::string key() const = 0;  // part of a cost key
  virtual std::vector<ContractionParameter> parameters() const = 0;

  // x [batch, 2, modes, inputs] -> [batch, 2, modes, outputs]; parameters in float32 or float64, as
  // x.
  virtual at::Tensor forward(const at::Tensor& x,
                             const std::vector<at::Tensor>& parameters) const = 0;
  // Gradient of x; writes those of the parameters.
  virtual at::Tensor backward(const at::Tensor& x, const at::Tensor& gradient,
                              const std::vector<at::Tensor>& parameters,
                              const ParameterGradient* gradients) const = 0;

  // What they allocate; the result included, its bytes returned.
  virtual std::int64_t sketch_forward(AllocationSketch& sketch,
                                      std::int64_t element_bytes) const = 0;
  virtual std::int64_t sketch_backward(AllocationSketch& sketch,
                                       std::int64_t element_bytes) const = 0;
  virtual double operations() const = 0;  // of the forward
};

// y = x · W for each mode; W [modes along each axis…, inputs, outputs, 2], normal with `deviation`
// of each real number.
std::unique_ptr<SpectralContraction> make_dense_contraction(const ContractionSizes& sizes,
                                                            double deviation);

// W = core ×₁ factors, in the shape [modes…, inputs, outputs]. Ranks as TensorLy chooses them for
// about `rank` times the dense numbers, and its deviations for weights of `deviation`.
// "factorized" multiplies spectra by one channel factor after the other; else by W.
struct TuckerRanks {
  std::vector<std::int64_t> axes;
  std::int64_t inputs = 0;
  std::int64_t outputs = 0;
};
TuckerRanks tucker_ranks(const ContractionSizes& sizes, double rank);
std::unique_ptr<SpectralContraction> make_tucker_contraction(const ContractionSizes& sizes,
                                                             double rank, double deviation,
                                                             bool factorized);

// W = Σ_r weight_r · the product of column r of the factors.
std::int64_t cp_rank(const ContractionSizes& sizes, double rank);
std::unique_ptr<SpectralContraction> make_cp_contraction(const ContractionSizes& sizes, double rank,
                                                         double deviation, bool factorized);

// Of conversions, and of the parameters of the contraction in the type of the transforms; 0 where
// they have it.
std::int64_t converted_parameter_bytes(const SpectralContraction& contraction,
                                       const Declaration& declaration);

// The parts that forms of weights share.
namespace spectral {

// x [batch, 2, modes, inputs] times weight [modes, inputs, outputs, 2].
at::Tensor multiply_by_mode(const at::Tensor& x, const at::Tensor& weight);
// Its gradients: of x returned, of weight written (or added) to `target`, flat and real.
at::Tensor multiply_by_mode_backward(const at::Tensor& x, const at::Tensor& gradient,
                                     const at::Tensor& weight, at::Tensor target, bool accumulate);
std::int64_t sketch_by_mode(AllocationSketch& sketch, const ContractionSizes& sizes,
                            std::int64_t inputs, std::int64_t outputs, std::int64_t element_bytes);
std::int64_t sketch_by_mode_backward(AllocationSketch& sketch, const ContractionSizes& sizes,
                                     std::int64_t inputs, std::int64_t outputs,
                                     std::int64_t element_bytes);

}  // namespace spectral

}  // namespace garonne::nn
