// A run that begins with the parameters of a checkpoint: which it is, and whether it is of a model
// that computes the same.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "nn/model.hpp"
#include "train/checkpoint/tensor_names.hpp"
#include "train/run/run_directory.hpp"
#include "train/workload/workload.hpp"

namespace garonne::train {

using Note = std::function<void(const std::string&)>;

// A verified checkpoint: `path` itself, or the newest of a run directory that is whole, the others
// named through `warn`. ConfigError (--init-from): there is none; IoError: none is whole.
StartingPoint initial_point(const std::string& path, const Note& warn);

// What is remembered of it. ConfigError (--init-from) for a path that is no UTF-8.
Beginning beginning_with(const StartingPoint& start, const std::string& given,
                         const AllowedTensors& allowed, const std::vector<std::string>& changes);

// A model knows the tokens that it was trained on: throws ConfigError (data.path) where those of
// the workload are another tokenizer's, by their ids; `note` says that data do not say it.
void expect_same_tokenizer(const StartingPoint& start, const Workload& workload,
                           const std::string& path, const Note& note);

// By the manifest alone. Throws ConfigError for a key of the model by which it computes something
// else from the same parameters than it was trained for, unless `changes` has it, which `note`
// says, and for one in `changes` that is no such key; IoError for names that `allowed` has not,
// shapes and types. `model`: all stages of it.
void expect_same_model(const StartingPoint& start, const RunConfig& config, const nn::Model& model,
                       Precision precision, const AllowedTensors& allowed,
                       const std::vector<std::string>& changes, const Note& note);

}  // namespace garonne::train
