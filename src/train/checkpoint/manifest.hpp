// What a checkpoint says of itself: its manifest, and the checkpoints of a run by their names.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/gpu_facts.hpp"
#include "train/checkpoint/beginning.hpp"
#include "train/checkpoint/key_change.hpp"

namespace garonne::train {

// Part of a global tensor: a box in it, and a flat range of elements inside the box.
struct Shard {
  std::string tensor;                // "<parameter>" or "<parameter>.<state>"
  std::vector<std::int64_t> offset;  // of the box
  std::vector<std::int64_t> shape;   // of the box
  std::int64_t begin = 0;            // elements
  std::int64_t end = 0;
  std::string file;
  std::string entry;  // name of the tensor in the file
};

struct GlobalTensor {
  std::string name;
  std::string type;  // as in safetensors
  std::vector<std::int64_t> shape;
};

// What manifest.json says ("garonne.checkpoint", docs/formats.md).
struct Manifest {
  std::int64_t step = 0;
  std::string config;  // the effective configuration, TOML
  int threads = 0;
  std::optional<device::GpuFacts> gpu;  // of rank 0, where the run was on one
  nlohmann::json products;
  std::string sums;     // how sums over data ranks are ordered where not in rank order; else empty
  nlohmann::json data;  // vocabulary, tokenizer, tokens of the data file
  std::vector<KeyChange> changes;      // of the keys of the run so far
  std::int64_t saved_at = 0;           // seconds since 1970; 0 = nobody said
  std::optional<Beginning> beginning;  // of a run that did not begin from its seed
  std::vector<GlobalTensor> tensors;
  std::vector<Shard> shards;
  std::vector<std::pair<std::string, std::string>> files;  // name, hash
  std::vector<std::int64_t> file_bytes;
  // By which the manifest guards itself, as read_manifest() found it.
  std::string hash;
};

// The step in the name of a checkpoint's folder, "step-<n>" with n >= 0 and no needless zero;
// nothing for other names.
std::optional<std::int64_t> checkpoint_step(const std::string& name);
// Lists checkpoints of a run directory by step, ascending, by their names; half-written ones are
// not checkpoints.
std::vector<std::int64_t> list_checkpoints(const std::string& run_directory);
std::string checkpoint_path(const std::string& run_directory, std::int64_t step);

// Reads and checks manifest.json; throws IoError.
Manifest read_manifest(const std::string& checkpoint);
// Of the data that a model of text was trained on; 0 where it is not said. IoError: it is no
// number.
std::int64_t vocabulary_of(const Manifest& manifest, const std::string& checkpoint);
// Also hashes every file; throws IoError naming the first that is damaged.
Manifest verify_checkpoint(const std::string& checkpoint);
// The same for a checkpoint of a run, which must be of the step in its name: a copy is refused.
Manifest verify_checkpoint_of_step(const std::string& run_directory, std::int64_t step);

// The same from its JSON, whose hash has been looked at; `path` is where that came from.
Manifest manifest_from_json(const nlohmann::json& json, const std::string& path);
// The text of manifest.json, with the hash by which it guards itself.
std::string manifest_text(const Manifest& manifest);
// A shard as a list of them has it, and back from what this program wrote itself.
nlohmann::ordered_json to_json(const Shard& shard);
Shard shard_from_json(const nlohmann::json& item);

}  // namespace garonne::train
