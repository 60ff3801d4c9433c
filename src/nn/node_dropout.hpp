// The dropout that a node does in one step.
#pragma once

#include <cstdint>
#include <string>

#include "base/philox.hpp"
#include "kernels/dropout.hpp"
#include "nn/node.hpp"

namespace garonne::nn {

// `name` of the node; `first_element` as in kernels::Dropout. Off outside of training.
inline kernels::Dropout dropout_of(const Context& context, const std::string& name,
                                   double probability, std::int64_t first_element = 0) {
  const bool active = context.training && probability > 0;
  return {philox_key(context.seed, name),
          active ? dropout_threshold(probability) : 0U,
          active ? 1.0 / (1.0 - probability) : 1.0,
          context.step,
          first_element,
          context.step_place};
}

}  // namespace garonne::nn
