#include "train/checkpoint/checkpoint.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "exec/stored_part.hpp"
#include "nn/element_type.hpp"
#include "train/checkpoint/checkpoint_files.hpp"
#include "train/checkpoint/safetensors.hpp"
#include "train/checkpoint/shard_reader.hpp"

namespace garonne::train {
namespace {

std::string type_name(at::ScalarType type) {
  return type == at::kDouble ? "F64" : type == at::kByte ? "U8" : "F32";
}

// Every stored tensor of a model, with what is here of its box: everything, or under ZeRO a flat
// range.
struct Stored {
  GlobalTensor global;
  nn::Box box;
  bool replicated = false;
  std::optional<exec::StoredPart> here;  // of a shard, which has none of some, maybe nothing
  std::int64_t first = 0;                // element of the box; what is beyond the box is padding
  std::int64_t elements = 0;
  bool in_shards = false;
  // All of it is with everybody who has a part of the parameter; in shards the first of them writes
  // it.
  bool of_whole = false;
  bool writes = true;
};

// Of a state that is not elementwise: the numbers of its blocks, in a row, which are of whole
// parameters, or those of a side.
nn::Box box_of_blocks(const StateBlocks& blocks, const nn::Box& box, const MatrixSides& sides) {
  expect(blocks.of_whole() || box.shape == box.global,
         "blocks of a state are of a parameter that is cut");
  return nn::whole_box({blocks.count(box.elements(), sides)});
}

std::vector<Stored> stored_tensors(const nn::Model& model, const std::vector<StateSpec>& states,
                                   const exec::ModelState& state) {
  const std::size_t kinds = 1 + states.size();
  const auto blocks_of = [&](std::size_t kind) {
    return kind == 0 ? StateBlocks() : states[kind - 1].blocks;
  };
  const auto type_of = [&](std::size_t kind) {
    return type_name(kind == 0 ? nn::state_scalar_type(state.precision)
                               : exec::scalar_type_of(states[kind - 1], state.precision));
  };
  std::vector<Stored> stored;
  for (std::size_t p = 0; p < model.graph.parameters.size(); ++p) {
    const plan::ParameterSpec& spec = model.graph.parameters[p];
    for (std::size_t k = 0; k < kinds; ++k) {
      const std::string name = k == 0 ? spec.name : spec.name + "." + states[k - 1].name;
      const nn::Box box = blocks_of(k).elementwise()
                              ? model.boxes[p]
                              : box_of_blocks(blocks_of(k), model.boxes[p], spec.sides());
      Stored& entry = stored.emplace_back();
      entry.global = {name, type_of(k), box.global};
      entry.box = box;
      entry.of_whole = blocks_of(k).of_whole();
      entry.replicated = spec.replicated || entry.of_whole;
      entry.in_shards = state.in_shards;
    }
  }
  for (const exec::TrainedPiece& piece : state.pieces) {
    const auto p = static_cast<std::size_t>(piece.index);
    for (std::size_t k = 0; k < kinds; ++k) {
      Stored& entry = stored[kinds * p + k];
      entry.here.emplace(state, k == 0 ? piece.trained() : piece.states[k - 1]);
      entry.first = blocks_of(k).count(piece.first);
      const std::int64_t in_box = std::max<std::int64_t>(0, entry.box.elements() - entry.first);
      entry.elements = std::min(entry.here->elements(), in_box);
      entry.writes = !entry.of_whole || piece.first == 0;
    }
  }
  return stored;
}

// Elements [first, last) of its box that are here.
std::pair<std::int64_t, std::int64_t> range_of(const Stored& tensor) {
  if (!tensor.in_shards) return {0, tensor.box.elements()};
  return {tensor.first, tensor.first + tensor.elements};
}

// Of a tied parameter, which the stage that counts it writes.
bool is_copy(const nn::Model& model, const std::string& tensor,
             const std::vector<StateSpec>& states) {
  return std::any_of(model.graph.parameters.begin(), model.graph.parameters.end(),
                     [&](const plan::ParameterSpec& spec) {
                       if (spec.counted) return false;
                       if (tensor == spec.name) return true;
                       return std::any_of(states.begin(), states.end(),
                                          [&](const StateSpec& state) {
                                            return tensor == spec.name + "." + state.name;
                                          });
                     });
}

// Elements [begin, end) of the box of a tensor, which are here. The tensor outlives it.
TensorSource source_of(const Stored& tensor, std::int64_t begin, std::int64_t end) {
  const exec::StoredPart& here = tensor.here.value();
  const std::int64_t first = begin - tensor.first;
  TensorSource source{tensor.global.name, tensor.global.type, {end - begin}, {}};
  if (const std::byte* const data = here.data()) {
    source.bytes = {data + first * here.element_bytes(),
                    static_cast<std::size_t>((end - begin) * here.element_bytes())};
  } else {
    source.bring = [&here, first, elements = end - begin](const TensorSource::Show& show) {
      here.read(first, elements, show);
    };
  }
  return source;
}

// What of the state is this rank's to write; `stored` outlives it.
std::vector<RankTensor> rank_tensors(const std::vector<Stored>& stored, const nn::Model& model,
                                     const std::vector<StateSpec>& states,
                                     const CollectivePhases& together) {
  const int replicas = together.replicas == 0 ? together.ranks : together.replicas;
  const int replica = together.replicas == 0 ? together.rank : together.replica;
  std::vector<RankTensor> tensors;
  for (const Stored& tensor : stored) {
    if (tensor.replicated && !together.writes_replicated) continue;
    if (is_copy(model, tensor.global.name, states)) continue;
    const auto in_shard =
        tensor.writes ? range_of(tensor) : std::pair<std::int64_t, std::int64_t>();
    const auto [begin, end] =
        tensor.in_shards ? in_shard : share_of(tensor.box.elements(), replica, replicas);
    RankTensor& part = tensors.emplace_back(RankTensor{tensor.global, tensor.box, begin, end, {}});
    if (!tensor.in_shards || begin < end) part.source = source_of(tensor, begin, end);
  }
  return tensors;
}

}  // namespace

void save_checkpoint(const std::string& run_directory, const nn::Model& model,
                     const std::vector<StateSpec>& states, const exec::ModelState& state,
                     Manifest manifest, const CollectivePhases& together) {
  write_checkpoint(run_directory, std::move(manifest), together, [&](const std::string& partial) {
    const std::vector<Stored> stored = stored_tensors(model, states, state);
    return write_rank_tensors(partial, together.rank,
                              rank_tensors(stored, model, states, together));
  });
}

std::vector<RankTensor> copy_of_state(const nn::Model& model, const std::vector<StateSpec>& states,
                                      const exec::ModelState& state,
                                      const CollectivePhases& together, std::span<std::byte> room) {
  const std::vector<Stored> stored = stored_tensors(model, states, state);
  return copy_rank_tensors(rank_tensors(stored, model, states, together), room);
}

void load_checkpoint(const std::string& checkpoint, const Manifest& manifest,
                     const nn::Model& model, const std::vector<StateSpec>& states,
                     exec::ModelState& state, std::size_t tensors_of_model,
                     const AllowedTensors& allowed) {
  std::map<std::string, const GlobalTensor*> globals;
  for (const auto& tensor : manifest.tensors) globals[tensor.name] = &tensor;
  const ShardReader reader(checkpoint, manifest);

  const auto stored = stored_tensors(model, states, state);
  const std::size_t wanted = tensors_of_model > 0 ? tensors_of_model : stored.size();
  if (!allowed.any() && wanted != manifest.tensors.size()) {
    throw IoError(checkpoint,
                  fmt::format("is of another model: it holds {} tensors where this one has {}",
                              manifest.tensors.size(), wanted));
  }
  for (const auto& tensor : stored) {
    const auto found = globals.find(tensor.global.name);
    if (found == globals.end() && is_named(allowed.missing, tensor.global.name)) continue;
    if (found == globals.end())
      throw IoError(checkpoint, "is of another model: it lacks " + tensor.global.name);
    const GlobalTensor& saved = *found->second;
    if (saved.shape != tensor.global.shape || saved.type != tensor.global.type) {
      throw IoError(checkpoint,
                    fmt::format("is of another model: {} is {} [{}] there and {} [{}] here",
                                tensor.global.name, saved.type, fmt::join(saved.shape, ", "),
                                tensor.global.type, fmt::join(tensor.global.shape, ", ")));
    }
    const auto [low, high] = range_of(tensor);
    reader.read(tensor.global, tensor.box, low, high,
                [&](std::int64_t to, std::int64_t elements, const ShardReader::Bring& bring) {
                  tensor.here->fill(to - tensor.first, elements, bring);
                });
  }
  exec::refresh_compute_copies(state);
}

}  // namespace garonne::train
