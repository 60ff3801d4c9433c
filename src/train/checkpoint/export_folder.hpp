// Folders that models are exported into, in the formats of other programs.
#pragma once

#include <string>
#include <vector>

#include "train/checkpoint/safetensors.hpp"

namespace garonne::train {

// Of the weights in an export, in whatever format it is.
std::string exported_weights_path(const std::string& directory);

// Whether an earlier export of Garonne is there. Throws ConfigError (--to) where the folder has one
// of these files, or a model.safetensors, and no export of Garonne wrote that.
bool expect_export_folder(const std::string& directory, const std::vector<std::string>& files);

// Writes model.safetensors there: the old one or the new one, never half of it. It says in its
// metadata who wrote it, by which expect_export_folder() knows it. IoError.
void write_exported(const std::string& directory, const std::vector<TensorSource>& tensors);

}  // namespace garonne::train
