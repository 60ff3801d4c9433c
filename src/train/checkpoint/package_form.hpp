// What a package of PyTorch calls the parameters of ours: a package is one file, which ends in its
// row, and one line of the registry (model_package.cpp). Private to this folder.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/config.hpp"
#include "base/json_input.hpp"
#include "nn/fields/field_model.hpp"
#include "plan/model/model_graph.hpp"

namespace garonne::train {

// Stands for an axis of length 1 in PackageTensor::axes.
inline constexpr int of_length_one = -1;

// Where a parameter of ours is in the package. Parameters with one name there are summed; on the
// way back the first of them is the tensor and the others are 0.
struct PackageTensor {
  std::string name;
  // Axis a of the tensor is axis axes[a] of the parameter, not counting the last one of 2 of a
  // complex number, which stays the last.
  std::vector<int> axes;
  // Of weights by degree and order, which are packed here by degree with orders 0 … degree: how
  // many degrees there are, and as many orders. The first axis of the parameter is then two for
  // `axes`, with 0 for the orders that there are not. 0 = weights of no such kind.
  std::int64_t triangle = 0;
};

struct ModelPackage {
  std::string name;         // of --to and --from
  std::string version;      // whose class it is
  std::string model_class;  // as Python imports it
  // What the constructor takes where nothing is given.
  nlohmann::ordered_json defaults;
  // Arguments that `model_keys` reads and checks; all others have to be those of `arguments`.
  std::vector<std::string> read;
  // All arguments. ConfigError where the class computes something else.
  std::function<nlohmann::ordered_json(const RunConfig::Model& keys, const nn::FieldShape& fields)>
      arguments;
  // The other way round.
  std::function<RunConfig::Model(const JsonPlace& arguments, const nn::FieldShape& fields)>
      model_keys;
  // Of every parameter of such a model.
  std::function<PackageTensor(const RunConfig::Model& keys, const plan::ParameterSpec& parameter)>
      tensor;
};

// "block.3.mlp.up.weight" of "block." as number "3" and rest "mlp.up.weight"; number empty = it
// does not begin so.
struct NumberedName {
  std::string number;
  std::string rest;
};
NumberedName split_number(const std::string& name, const std::string& prefix);

// [0, 1, …] and axes of length 1 behind, for a weight or bias of a convolution over points.
std::vector<int> pointwise_axes(const plan::ParameterSpec& parameter, int lengths_of_one);

ModelPackage neuraloperator_package();
ModelPackage torch_harmonics_package();
ModelPackage makani_package();

// ConfigError for a grid on the sphere that torch-harmonics, which both packages of spherical
// operators transform with, has no quadrature for.
void expect_grid_of_package(const std::string& grid);

// What both packages of spherical operators call alike; `big_skip` is called by its name in theirs.
RunConfig::Model spherical_keys(const JsonPlace& arguments, std::string block,
                                std::string_view big_skip);

}  // namespace garonne::train
