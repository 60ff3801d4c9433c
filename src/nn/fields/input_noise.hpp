// Noise on the input that a model on fields loads (train.noise), added by every node that reads it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "nn/node.hpp"
#include "nn/operators/field_network.hpp"

namespace garonne::nn {

// Normal numbers, a function of (seed, step, sample, member, element of the sample's [channels,
// points]), so that all readers, a recomputation and another grid meet the same ones. Nothing
// outside training, unless it is what makes the members of an ensemble.
class InputNoise {
 public:
  // Of what `window` has of the loaded input.
  InputNoise(const FieldShape& shape, const FieldWindow& window);

  // Adds the noise of the channels from `first_channel` on to `field` [samples · members, channels,
  // points, in any strides and any number of dimensions].
  void add(const Context& context, std::int64_t first_channel, const at::Tensor& field) const;

  std::int64_t transient_bytes(const Declaration& declaration) const;  // of add
  std::string key() const;                                             // part of a cost key

 private:
  double deviation_ = 0;
  std::int64_t members_;
  std::int64_t points_;  // of one channel
  FieldRows rows_;       // where the field is cut
};

}  // namespace garonne::nn
