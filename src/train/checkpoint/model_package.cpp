#include "train/checkpoint/model_package.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <numeric>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/key_limits.hpp"
#include "base/printable.hpp"
#include "train/checkpoint/export_folder.hpp"
#include "train/checkpoint/package_form.hpp"
#include "train/checkpoint/safetensors.hpp"
#include "train/checkpoint/tensor_file.hpp"

namespace garonne::train {

RunConfig::Model spherical_keys(const JsonPlace& arguments, std::string block,
                                std::string_view big_skip) {
  RunConfig::Model keys;
  keys.kind = "sfno";
  keys.block = std::move(block);
  keys.scale_factor = arguments.key("scale_factor").integer(1, most_width);
  keys.hidden = arguments.key("embed_dim").integer(1, most_width);
  keys.layers = arguments.key("num_layers").integer(1, most_layers);
  keys.mlp_ratio = arguments.key("mlp_ratio").number(0, most_ratio);
  keys.big_skip = arguments.key(big_skip).truth();
  const JsonPlace norm = arguments.key("normalization_layer");
  if (norm.text() != "none" && norm.text() != "instance_norm")
    norm.refuse("must be none or instance_norm");
  keys.norm = norm.text() == "none" ? "none" : "instance";
  return keys;
}

void expect_grid_of_package(const std::string& grid) {
  if (grid == "equiangular" || grid == "legendre-gauss") return;
  throw ConfigError("the grid of the data", grid,
                    "is one that torch-harmonics has no transform for: there are equiangular (with "
                    "both poles) and legendre-gauss; only a run on data of these is exported");
}

NumberedName split_number(const std::string& name, const std::string& prefix) {
  if (name.rfind(prefix, 0) != 0) return {};
  const auto end = name.find('.', prefix.size());
  return {name.substr(prefix.size(), end - prefix.size()), name.substr(end + 1)};
}

std::vector<int> pointwise_axes(const plan::ParameterSpec& parameter, int lengths_of_one) {
  std::vector<int> axes(parameter.shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  axes.insert(axes.end(), static_cast<std::size_t>(lengths_of_one), of_length_one);
  return axes;
}

namespace {

const std::vector<ModelPackage>& model_packages() {
  static const std::vector<ModelPackage> packages = {neuraloperator_package(),
                                                     torch_harmonics_package(), makani_package()};
  return packages;
}

const ModelPackage& model_package(const std::string& name) {
  for (const ModelPackage& package : model_packages()) {
    if (package.name == name) return package;
  }
  throw InternalError("no package " + name);
}

std::string config_path(const std::string& directory) {
  return directory + "/config.json";
}

// Axes of the parameter, the pair of a complex number among them, in the order of the package.
std::vector<std::int64_t> permutation(const PackageTensor& there, bool complex) {
  std::vector<std::int64_t> order;
  for (const int axis : there.axes) {
    if (axis != of_length_one) order.push_back(axis);
  }
  if (complex) order.push_back(static_cast<std::int64_t>(order.size()));
  return order;
}

// With the two axes of a triangle.
std::vector<std::int64_t> spread_shape(const PackageTensor& there,
                                       const std::vector<std::int64_t>& shape) {
  if (there.triangle == 0) return shape;
  std::vector<std::int64_t> spread = {there.triangle, there.triangle};
  spread.insert(spread.end(), shape.begin() + 1, shape.end());
  return spread;
}

std::vector<std::int64_t> package_shape(const PackageTensor& there,
                                        const plan::ParameterSpec& parameter) {
  const std::vector<std::int64_t> here = spread_shape(there, parameter.shape);
  std::vector<std::int64_t> shape;
  for (const int axis : there.axes)
    shape.push_back(axis == of_length_one ? 1 : here[static_cast<std::size_t>(axis)]);
  if (parameter.complex) shape.push_back(2);
  return shape;
}

// The elements of the first axis of two, flattened, that the packed rows are.
at::Tensor triangle_rows(std::int64_t degrees) {
  std::vector<std::int64_t> rows;
  for (std::int64_t degree = 0; degree < degrees; ++degree) {
    for (std::int64_t order = 0; order <= degree; ++order) rows.push_back(degree * degrees + order);
  }
  return at::tensor(rows, at::kLong);
}

at::Tensor to_package(const PackageTensor& there, const plan::ParameterSpec& parameter,
                      at::Tensor tensor) {
  if (there.triangle != 0) {
    std::vector<std::int64_t> flat = parameter.shape;
    flat[0] = there.triangle * there.triangle;
    tensor = at::zeros(flat, tensor.options())
                 .index_copy(0, triangle_rows(there.triangle), tensor)
                 .reshape(spread_shape(there, parameter.shape));
  }
  return tensor.permute(permutation(there, parameter.complex))
      .contiguous()
      .reshape(package_shape(there, parameter));
}

at::Tensor from_package(const PackageTensor& there, const plan::ParameterSpec& parameter,
                        const at::Tensor& tensor) {
  const std::vector<std::int64_t> order = permutation(there, parameter.complex);
  const std::vector<std::int64_t> here = spread_shape(there, parameter.shape);
  std::vector<std::int64_t> permuted;
  std::vector<std::int64_t> back(order.size());
  for (std::size_t axis = 0; axis < order.size(); ++axis) {
    permuted.push_back(here[static_cast<std::size_t>(order[axis])]);
    back[static_cast<std::size_t>(order[axis])] = static_cast<std::int64_t>(axis);
  }
  const at::Tensor mine = tensor.reshape(permuted).permute(back);
  if (there.triangle == 0) return mine;
  std::vector<std::int64_t> flat = parameter.shape;
  flat[0] = there.triangle * there.triangle;
  return mine.reshape(flat).index_select(0, triangle_rows(there.triangle));
}

// Numbers by value, texts without regard to capitals, in which packages differ.
bool equal_arguments(const nlohmann::json& a, const nlohmann::json& b) {
  if (!a.is_string() || !b.is_string()) return a == b;
  const auto& left = a.get_ref<const std::string&>();
  const auto& right = b.get_ref<const std::string&>();
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) ==
           std::tolower(static_cast<unsigned char>(y));
  });
}

}  // namespace

std::vector<std::string> model_package_names() {
  std::vector<std::string> names;
  for (const ModelPackage& package : model_packages()) names.push_back(package.name);
  return names;
}

namespace {

// A tensor of the package and the parameters that it is the sum of, in their order.
struct ExportedTensor {
  PackageTensor there;
  std::vector<std::size_t> parameters;
};

std::vector<ExportedTensor> exported_tensors(const ModelPackage& package,
                                             const RunConfig::Model& keys,
                                             const std::vector<plan::ParameterSpec>& parameters) {
  std::vector<ExportedTensor> tensors;
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    const PackageTensor there = package.tensor(keys, parameters[p]);
    const auto known = std::find_if(tensors.begin(), tensors.end(), [&](const auto& tensor) {
      return tensor.there.name == there.name;
    });
    if (known == tensors.end()) {
      tensors.push_back({there, {p}});
    } else {
      known->parameters.push_back(p);
    }
  }
  return tensors;
}

// What is written is loaded when it is its turn. All outlive the source.
TensorSource source_of(const StoredModel& model, const ModelPackage& package,
                       const ExportedTensor& tensor) {
  const auto& parameters = model.setup.model.graph.parameters;
  TensorSource source;
  source.name = tensor.there.name;
  source.type = model.setup.declaration.precision == Precision::Float64 ? "F64" : "F32";
  source.shape = package_shape(tensor.there, parameters[tensor.parameters.front()]);
  source.bring = [&](const TensorSource::Show& show) {
    at::Tensor sum;
    for (const std::size_t p : tensor.parameters) {
      const PackageTensor there = package.tensor(model.config.model, parameters[p]);
      const at::Tensor made = to_package(there, parameters[p], model.parameter(p));
      sum = sum.defined() ? at::add(sum, made) : made;
    }
    show({static_cast<const std::byte*>(sum.const_data_ptr()), sum.nbytes()});
  };
  return source;
}

}  // namespace

void export_to_package(const std::string& name, const StoredModel& model,
                       const std::string& directory) {
  const ModelPackage& package = model_package(name);
  const RunConfig::Model& keys = model.config.model;
  nlohmann::ordered_json config = {
      {"format", "garonne.package"},
      {"version", 1},
      {"package", package.name},
      {"package_version", package.version},
      {"class", package.model_class},
      {"arguments", package.arguments(keys, model.setup.facts.fields)}};
  expect_export_folder(directory, {"config.json"});
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) throw IoError(directory, "cannot be made: " + error.message());
  const auto& parameters = model.setup.model.graph.parameters;
  const std::vector<ExportedTensor> tensors = exported_tensors(package, keys, parameters);
  config["complex"] = nlohmann::ordered_json::array();
  std::vector<TensorSource> sources;
  for (const ExportedTensor& tensor : tensors) {
    sources.push_back(source_of(model, package, tensor));
    if (parameters[tensor.parameters.front()].complex)
      config["complex"].push_back(tensor.there.name);
  }
  write_exported(directory, sources);
  write_file_durably(config_path(directory), config.dump(2) + "\n");
}

RunConfig::Model package_model_keys(const std::string& name, const std::string& directory,
                                    const nn::FieldShape& fields) {
  const ModelPackage& package = model_package(name);
  const std::string path = config_path(directory);
  nlohmann::json json = parse_json(read_text_file(path), path);
  const JsonFile given_file(json, path);
  const JsonPlace given = given_file.root();
  given.expect_format("garonne.package", 1);
  const auto expect_text = [&](const char* key, const std::string& wanted) {
    if (given.key(key).text() != wanted)
      given.key(key).refuse(fmt::format("known of {} is {}", name, wanted));
  };
  expect_text("package", package.name);
  expect_text("class", package.model_class);
  given.key("arguments").expect_object();
  // Refusals name the file whether the value is in it or the package's own.
  nlohmann::json whole = json;
  for (const auto& [argument, value] : package.defaults.items()) {
    if (!whole["arguments"].contains(argument)) whole["arguments"][argument] = value;
  }
  const JsonFile file(whole, path);
  const JsonPlace arguments = file.root().key("arguments");
  const RunConfig::Model keys = package.model_keys(arguments, fields);
  const nlohmann::json wanted = package.arguments(keys, fields);
  for (const auto& [argument, value] : arguments.members()) {
    if (!wanted.contains(argument))
      value.refuse(fmt::format("is no argument of {} that is known", package.model_class));
  }
  for (const auto& [argument, value] : wanted.items()) {
    if (std::count(package.read.begin(), package.read.end(), argument) != 0) continue;
    const JsonPlace place = arguments.key(argument);
    if (equal_arguments(place.json(), value)) continue;
    place.refuse(fmt::format("must be {}, by what is computed here and the data of the run file",
                             value.dump()));
  }
  return keys;
}

void import_from_package(const std::string& name, const RunConfig::Model& keys,
                         const std::string& directory, const nn::Model& model,
                         const exec::ModelState& state) {
  const ModelPackage& package = model_package(name);
  const std::string path = exported_weights_path(directory);
  const SafetensorsFile file(path);
  std::map<std::string, const TensorEntry*> unused;
  for (const TensorEntry& entry : file.tensors()) unused[entry.name] = &entry;
  std::map<std::string, const TensorEntry*> used;
  for (std::size_t p = 0; p < model.graph.parameters.size(); ++p) {
    const plan::ParameterSpec& parameter = model.graph.parameters[p];
    const PackageTensor there = package.tensor(keys, parameter);
    const at::Tensor target = state.parameter(p).trained();
    if (used.count(there.name) != 0) {
      target.zero_();
      continue;
    }
    const auto found = unused.find(there.name);
    if (found == unused.end()) throw IoError(path, fmt::format("has no tensor {}", there.name));
    const TensorEntry& entry = *found->second;
    const std::vector<std::int64_t> shape = package_shape(there, parameter);
    if (entry.shape != shape) {
      throw IoError(path,
                    fmt::format("tensor {} has the shape [{}], and config.json makes it [{}]{}",
                                there.name, fmt::join(entry.shape, ", "), fmt::join(shape, ", "),
                                parameter.complex ? ", real and imaginary parts last" : ""));
    }
    target.copy_(from_package(there, parameter, read_tensor(file, path, entry)));
    used.insert(*found);
    unused.erase(found);
  }
  if (!unused.empty()) {
    throw IoError(path, fmt::format("has the tensor {}, which is none of this model",
                                    printable(unused.begin()->first)));
  }
}

}  // namespace garonne::train
