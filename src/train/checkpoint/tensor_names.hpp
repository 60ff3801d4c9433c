// By which tensors a checkpoint and a model may differ: by none, but for those that the user names.
#pragma once

#include <string>
#include <vector>

#include "base/state_spec.hpp"
#include "plan/model/model_graph.hpp"
#include "train/checkpoint/manifest.hpp"

namespace garonne::train {

// Names of tensors; one that ends in "*" stands for all that begin so.
struct AllowedTensors {
  std::vector<std::string> missing;  // in the checkpoint: they keep the values of step 0
  std::vector<std::string> unused;   // by the model: they are left behind

  bool any() const { return !missing.empty() || !unused.empty(); }
};

// Whether one of `patterns` stands for the tensor.
bool is_named(const std::vector<std::string>& patterns, const std::string& tensor);

// Those patterns that stand for none of `tensors`.
std::vector<std::string> patterns_of_none(const std::vector<std::string>& patterns,
                                          const std::vector<std::string>& tensors);

// Those that a checkpoint of a model has: parameters, and the states of the optimizer.
std::vector<std::string> tensor_names(const plan::ModelGraph& graph,
                                      const std::vector<StateSpec>& states);

struct TensorDifference {
  std::vector<std::string> missing;
  std::vector<std::string> unused;
};
// Those of a checkpoint.
std::vector<std::string> tensor_names(const Manifest& manifest);
// Of them those that are no states of others.
std::vector<std::string> parameter_names(const Manifest& manifest);

// Of the names alone. Throws IoError with the first that is not allowed, and with the option that
// would allow it.
TensorDifference compare_tensors(const std::string& checkpoint,
                                 const std::vector<std::string>& of_checkpoint,
                                 const std::vector<std::string>& of_model,
                                 const AllowedTensors& allowed);

}  // namespace garonne::train
