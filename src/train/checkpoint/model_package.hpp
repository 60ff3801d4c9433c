// Weights of models on fields to and from packages of PyTorch: a folder with model.safetensors, in
// the names and shapes of the package's class, and config.json with the arguments of its
// constructor (docs/formats.md, garonne.package).
#pragma once

#include <string>
#include <vector>

#include "base/config.hpp"
#include "exec/model_state.hpp"
#include "nn/fields/field_model.hpp"
#include "nn/model.hpp"
#include "train/checkpoint/trained_model.hpp"

namespace garonne::train {

// What --to and --from may be, in the order of the registry.
std::vector<std::string> model_package_names();

// Writes both files into `directory`, which is made when missing; of the parameters one tensor is
// in memory at a time. ConfigError where the package has no class that computes the same, naming
// the key to change; IoError.
void export_to_package(const std::string& package, const StoredModel& model,
                       const std::string& directory);

// The keys of [model] that config.json says, for data of `fields`. ConfigError (key of the file):
// another package or class, data of other sizes, or an argument with which something else is
// computed; IoError for a file that cannot be read.
RunConfig::Model package_model_keys(const std::string& package, const std::string& directory,
                                    const nn::FieldShape& fields);

// Fills what the optimizer updates of the whole `model`, which has those keys. Float32, float16,
// bfloat16 and float64 tensors are converted. IoError naming file and tensor: one is missing, has
// another shape or type, or is not known.
void import_from_package(const std::string& package, const RunConfig::Model& keys,
                         const std::string& directory, const nn::Model& model,
                         const exec::ModelState& state);

}  // namespace garonne::train
