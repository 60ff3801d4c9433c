// What lasts from step to step on a rank: parameters, masters and optimizer states.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/device.hpp"
#include "base/precision.hpp"
#include "base/state_spec.hpp"
#include "device/disk_tier.hpp"
#include "device/tier_memory.hpp"
#include "dist/transport.hpp"
#include "exec/buffer_store.hpp"
#include "exec/staging.hpp"
#include "nn/model.hpp"
#include "plan/program/program.hpp"

namespace garonne::exec {

// What a rank trains of a parameter, and where it is: all of it, or where the data group shares
// them a piece. With the parameter's shape where all of it is here, else flat.
struct TrainedPiece {
  int index = 0;                     // of the parameter in the model
  std::int64_t first = 0;            // element of the parameter that it starts with
  BufferPart parameter;              // in the compute type
  std::optional<BufferPart> master;  // float32; none where the parameter is its own
  std::vector<BufferPart> states;    // of their own types; flat where they are not elementwise

  // What the optimizer updates.
  const BufferPart& trained() const { return master ? *master : parameter; }
};

// The tensors of a piece.
struct ParameterState {
  int index = 0;
  std::int64_t first = 0;
  at::Tensor parameter;
  at::Tensor master;  // undefined where the parameter is its own
  std::vector<at::Tensor> states;

  // What the optimizer updates.
  at::Tensor trained() const { return master.defined() ? master : parameter; }
};

struct ModelState {
  Queue queue;                 // of the device that has it
  Staging* staging = nullptr;  // of a GPU that has it
  // That has those of `buffers` that are on a disk.
  device::DiskTier* disk = nullptr;
  Precision precision = Precision::Float32;
  // What is live between steps, by the names of the Program's buffers.
  BufferStore buffers;
  // Those of `buffers` that kernels read and nothing changes; none where they read the host's.
  nn::DeviceTables tables;
  // Ascending by index; in the Program's order of pieces.
  std::vector<TrainedPiece> pieces;
  // The data group shares what is trained; else all its ranks train the same.
  bool in_shards = false;
  // Those of `buffers` of which the rank trains a part and holds all: others have the rest.
  std::vector<std::string> gathered;

  // Of piece `number`: views of `buffers`, made anew each time. InternalError where a part of it is
  // no memory: exec/stored_part.hpp.
  ParameterState parameter(std::size_t number) const;
};

// Of the numbers of an optimizer's state.
at::ScalarType scalar_type_of(const StateSpec& state, Precision precision);

// Step 0: parameters by (seed, name, element), states zero. Allocates from the calling thread's
// tier. The whole of every parameter; `states`: the optimizer's. Random numbers are the host's on
// every device, and come to a GPU through `staging`, which outlives the state.
ModelState initial_state(const Queue& queue, const nn::Model& model, Precision precision,
                         std::uint64_t seed, const std::vector<StateSpec>& states,
                         Staging* staging = nullptr);

// The same as the rank holds it that runs `program`. Of one that trains every rank makes what it
// trains only: gather_parameters is to follow. Of one that does not it has all of each parameter.
// `below` makes what the Program has on tiers below the device; what it has nothing for is left to
// make_buffers_below().
ModelState initial_state(const Queue& queue, const nn::Model& model, Precision precision,
                         std::uint64_t seed, const plan::Program& program,
                         Staging* staging = nullptr, BufferStore::Makers below = {});

// Tiers below the device; null where Programs have nothing there.
struct MemoryBelow {
  device::TierMemory* host = nullptr;
  device::DiskTier* disk = nullptr;
};

// What initial_state() has left out: the Program's lasting buffers on tiers below the device, which
// outlive the state, in the order of their numbers, with masters of step 0 and states zero.
void make_buffers_below(ModelState& state, const nn::Model& model, const plan::Program& program,
                        std::uint64_t seed, const MemoryBelow& below);

// A tensor of the state where the host can read it: itself, or of a GPU a copy beside all tiers.
at::Tensor on_host(const ModelState& state, const at::Tensor& tensor);

// Makes the compute copies again from the masters, of what the rank trains: see gather_parameters.
void refresh_compute_copies(ModelState& state);

// After what the rank trains was filled from elsewhere: the rest of `gathered` again. `data`: over
// the data group; null where there is one member. Collective over it.
void gather_parameters(ModelState& state, dist::Transport* data);

}  // namespace garonne::exec
