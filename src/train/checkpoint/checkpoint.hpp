// Checkpoints: one directory a step, written beside and renamed when whole. Any grid reads what any
// wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "exec/model_state.hpp"
#include "nn/model.hpp"
#include "train/checkpoint/manifest.hpp"
#include "train/checkpoint/tensor_names.hpp"

namespace garonne::train {

// The collective steps that saving needs; on one rank they do nothing.
struct CollectivePhases {
  int rank = 0;
  int ranks = 1;
  // Which of the ranks that hold the same boxes this one is, and how many they are; 0 = all ranks.
  int replica = 0;
  int replicas = 0;
  // Whether this rank writes what is equal on all tensor ranks.
  bool writes_replicated = true;
  // Runs a phase on every rank and throws on all of them when any failed.
  std::function<void(const std::function<void()>&)> phase = [](const std::function<void()>& work) {
    work();
  };
  // The text of the lowest rank that has one, on every rank; empty where none has.
  std::function<std::string(const std::string&)> first_text = [](const std::string& text) {
    return text;
  };
  // Runs what puts the whole checkpoint in its place; on rank 0.
  std::function<void(const std::function<void()>&)> commit = [](const std::function<void()>& work) {
    work();
  };
  // Whether the half-written folder, where it is not wanted any more, is these ranks' to remove.
  std::function<bool()> may_remove = [] { return true; };
  // What the name of the half-written folder ends with: another one while two may be written.
  std::string suffix;
  // Texts of all ranks, on rank 0 (nothing elsewhere).
  std::function<std::vector<std::string>(const std::string&)> gather = [](const std::string& text) {
    return std::vector<std::string>{text};
  };
};

// Collective over all ranks. Each rank writes its share of the elements of every box that it holds,
// which no other rank writes. Throws on every rank, with the older checkpoints untouched and
// nothing half-written left: IoError, and an error with code 6 (dist::AgreedError) that names the
// tensor where a value is not finite.
void save_checkpoint(const std::string& run_directory, const nn::Model& model,
                     const std::vector<StateSpec>& states, const exec::ModelState& state,
                     Manifest manifest, const CollectivePhases& together);

struct RankTensor;
// What save_checkpoint() writes on this rank, with its bytes in `room`: the state may change then.
// InternalError where `room` is too small (train/plans/saving_plan.hpp); IoError from a disk.
std::vector<RankTensor> copy_of_state(const nn::Model& model, const std::vector<StateSpec>& states,
                                      const exec::ModelState& state,
                                      const CollectivePhases& together, std::span<std::byte> room);

// Fills `state` (made for this model and precision) from a checkpoint that has been verified,
// whatever boxes it was written in.
// `tensors_of_model`: that are to be there, of all stages together and with states that are not
// read; 0 = those of `model` and `states`. Throws IoError when it is
// of another model: a tensor is missing, has another shape or another type. Where `allowed` names
// any, names are as compare_tensors() has found them, and what is missing stays as it is.
void load_checkpoint(const std::string& checkpoint, const Manifest& manifest,
                     const nn::Model& model, const std::vector<StateSpec>& states,
                     exec::ModelState& state, std::size_t tensors_of_model = 0,
                     const AllowedTensors& allowed = {});

}  // namespace garonne::train
