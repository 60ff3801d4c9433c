// The static tensors of a rank: parameters, masters and optimizer states.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/precision.hpp"
#include "dist/transport.hpp"
#include "nn/model.hpp"
#include "plan/program/program.hpp"

namespace garonne::exec {

struct ParameterState {
  at::Tensor parameter;            // in the compute type, with the parameter's shape
  at::Tensor master;               // float32, same shape; undefined where the parameter is its own
  std::vector<at::Tensor> states;  // in the state type, same shape

  // What the optimizer updates.
  const at::Tensor& trained() const { return master.defined() ? master : parameter; }
};

// What a data rank holds of a bucket under ZeRO; everything is flat.
struct ShardState {
  plan::Bucket bucket;   // where its parameters lie
  at::Tensor whole;      // padded range in the compute type; undefined in stage 3
  at::Tensor parameter;  // own shard in the compute type; a view of `whole` if there is one
  at::Tensor master;     // own shards, as in ParameterState
  std::vector<at::Tensor> states;

  const at::Tensor& trained() const { return master.defined() ? master : parameter; }
};

// Either `parameters` or `shards`.
struct ModelState {
  Precision precision = Precision::Float32;
  std::vector<ParameterState> parameters;  // by parameter index
  std::vector<ShardState> shards;          // by bucket
  int member = 0;                          // of the data group: whose shards these are
};

// Step 0: parameters by (seed, name, element), states zero. Allocates from the calling thread's
// tier.
ModelState initial_state(const nn::Model& model, Precision precision, std::uint64_t seed,
                         int optimizer_states);

// The same for data rank `member` as `program` holds it: in shards where program.zero says so.
// Every rank makes its own shards only: gather_parameters is to follow.
ModelState initial_state(const nn::Model& model, Precision precision, std::uint64_t seed,
                         const plan::Program& program, int member);

// Makes the compute copies again from the masters.
// In shards only the own one: see gather_parameters.
void refresh_compute_copies(ModelState& state);

// After shards were filled from elsewhere: the whole ranges of stages 1 and 2 again. `data`: over
// the data group; null where there is one member. Collective over it.
void gather_parameters(ModelState& state, dist::Transport* data);

}  // namespace garonne::exec
