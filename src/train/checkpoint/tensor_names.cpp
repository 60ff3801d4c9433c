#include "train/checkpoint/tensor_names.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "base/printable.hpp"

namespace garonne::train {

bool is_named(const std::vector<std::string>& patterns, const std::string& tensor) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    if (pattern.empty() || pattern.back() != '*') return pattern == tensor;
    return tensor.compare(0, pattern.size() - 1, pattern, 0, pattern.size() - 1) == 0;
  });
}

std::vector<std::string> patterns_of_none(const std::vector<std::string>& patterns,
                                          const std::vector<std::string>& tensors) {
  std::vector<std::string> found;
  for (const std::string& pattern : patterns) {
    if (std::none_of(tensors.begin(), tensors.end(),
                     [&](const std::string& tensor) { return is_named({pattern}, tensor); }))
      found.push_back(pattern);
  }
  return found;
}

std::vector<std::string> tensor_names(const plan::ModelGraph& graph,
                                      const std::vector<StateSpec>& states) {
  std::vector<std::string> names;
  for (const plan::ParameterSpec& parameter : graph.parameters) {
    names.push_back(parameter.name);
    for (const StateSpec& state : states) names.push_back(parameter.name + "." + state.name);
  }
  return names;
}

std::vector<std::string> tensor_names(const Manifest& manifest) {
  std::vector<std::string> names;
  for (const GlobalTensor& tensor : manifest.tensors) names.push_back(tensor.name);
  return names;
}

std::vector<std::string> parameter_names(const Manifest& manifest) {
  const std::vector<std::string> all = tensor_names(manifest);
  const std::set<std::string> known(all.begin(), all.end());
  std::vector<std::string> names;
  for (const std::string& name : all) {
    const std::size_t dot = name.rfind('.');
    if (dot == std::string::npos || known.count(name.substr(0, dot)) == 0) names.push_back(name);
  }
  return names;
}

TensorDifference compare_tensors(const std::string& checkpoint,
                                 const std::vector<std::string>& of_checkpoint,
                                 const std::vector<std::string>& of_model,
                                 const AllowedTensors& allowed) {
  const std::set<std::string> here(of_model.begin(), of_model.end());
  const std::set<std::string> there(of_checkpoint.begin(), of_checkpoint.end());
  TensorDifference difference;
  std::set_difference(here.begin(), here.end(), there.begin(), there.end(),
                      std::back_inserter(difference.missing));
  std::set_difference(there.begin(), there.end(), here.begin(), here.end(),
                      std::back_inserter(difference.unused));
  for (const std::string& name : difference.missing) {
    if (is_named(allowed.missing, name)) continue;
    throw IoError(checkpoint,
                  fmt::format("is of another model: it lacks {0}; where that is to begin with the "
                              "values of step 0, give --allow-missing {0}",
                              printable(name)));
  }
  for (const std::string& name : difference.unused) {
    if (is_named(allowed.unused, name)) continue;
    throw IoError(checkpoint, fmt::format("is of another model: it holds {0}, which this one has "
                                          "not; to leave it behind, give --allow-unused {0}",
                                          printable(name)));
  }
  return difference;
}

}  // namespace garonne::train
