// What the nodes of a model take of a GPU while they are measured.
#pragma once

#include <cstdint>

#include "nn/model.hpp"
#include "optim/optimizer.hpp"

namespace garonne::exec {

// More fits no GPU's cache.
inline constexpr std::int64_t most_swept_on_gpu = std::int64_t{128} << 20;
// Rows and columns of the products that warm a GPU up.
inline constexpr std::int64_t warm_up_side = 2048;

// What is written before a node is measured, so that it finds caches as a step leaves them.
std::int64_t swept_bytes(const nn::Model& model, std::int64_t element_bytes,
                         std::int64_t most_bytes);

// What profile_model has in a GPU's tier at most, after warming up, by what nodes declare.
std::int64_t node_profile_bytes(const nn::Model& model, const nn::Declaration& declaration);

// A tier for profile_model and profile_step: with half as much again, for holes between blocks and
// for what libraries take that nodes do not declare.
std::int64_t profile_bytes(const nn::Model& model, const nn::Declaration& declaration,
                           const optim::Optimizer& optimizer);

}  // namespace garonne::exec
