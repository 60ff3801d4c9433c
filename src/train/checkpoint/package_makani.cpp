// makani's spherical Fourier neural operator, by its published names and shapes: model.kind sfno
// with model.block = makani.
#include <fmt/format.h>

#include <cmath>

#include "base/error.hpp"
#include "train/checkpoint/package_form.hpp"

namespace garonne::train {
namespace {

void check_kind(const RunConfig::Model& keys) {
  if (keys.kind != "sfno") {
    throw ConfigError("model.kind", keys.kind,
                      "has no class in makani that weights can go to; there is that of sfno with "
                      "model.block = makani");
  }
  if (keys.block == "torch-harmonics") {
    throw ConfigError("model.block", keys.block,
                      "is not of makani: export --to torch-harmonics, or set model.block = makani");
  }
}

// The arguments alone that neither keys nor data say.
nlohmann::ordered_json defaults() {
  return {{"spectral_transform", "sht"},
          {"model_grid_type", "equiangular"},
          {"sht_grid_type", "legendre-gauss"},
          {"filter_type", "linear"},
          {"operator_type", "dhconv"},
          {"inp_shape", {721, 1440}},
          {"out_shape", {721, 1440}},
          {"scale_factor", 8},
          {"inp_chans", 2},
          {"out_chans", 2},
          {"embed_dim", 32},
          {"num_layers", 4},
          {"use_mlp", true},
          {"mlp_ratio", 2.0},
          {"encoder_ratio", 1},
          {"decoder_ratio", 1},
          {"activation_function", "gelu"},
          {"encoder_layers", 1},
          {"pos_embed", "none"},
          {"pos_drop_rate", 0.0},
          {"path_drop_rate", 0.0},
          {"mlp_drop_rate", 0.0},
          {"normalization_layer", "instance_norm"},
          {"max_modes", nullptr},
          {"hard_thresholding_fraction", 1.0},
          {"big_skip", true},
          {"rank", 1.0},
          {"separable", false},
          {"complex_activation", "real"},
          {"spectral_layers", 3},
          {"bias", false},
          {"checkpointing_level", 0}};
}

nlohmann::ordered_json arguments_of(const RunConfig::Model& keys, const nn::FieldShape& fields) {
  check_kind(keys);
  expect_grid_of_package(fields.grid);
  nlohmann::ordered_json arguments = defaults();
  arguments["model_grid_type"] = fields.grid;
  arguments["operator_type"] = keys.spectral_operator;
  arguments["inp_shape"] = fields.points;
  arguments["out_shape"] = fields.points;
  arguments["scale_factor"] = keys.scale_factor;
  arguments["inp_chans"] = fields.input_channels;
  arguments["out_chans"] = fields.target_channels;
  arguments["embed_dim"] = keys.hidden;
  arguments["num_layers"] = keys.layers;
  if (keys.mlp_ratio != 0) arguments["mlp_ratio"] = keys.mlp_ratio;
  arguments["normalization_layer"] = keys.norm == "none" ? "none" : "instance_norm";
  arguments["big_skip"] = keys.big_skip;
  return arguments;
}

RunConfig::Model model_keys(const JsonPlace& arguments, const nn::FieldShape&) {
  RunConfig::Model keys = spherical_keys(arguments, "makani", "big_skip");
  const JsonPlace by = arguments.key("operator_type");
  if (by.text() != "dhconv" && by.text() != "diagonal") by.refuse("must be dhconv or diagonal");
  keys.spectral_operator = by.text();
  return keys;
}

PackageTensor spectral_tensor(const RunConfig::Model& keys, const std::string& name,
                              const plan::ParameterSpec& parameter) {
  if (keys.spectral_operator == "dhconv") return {name, {of_length_one, 1, 2, 0}};
  // degrees (degrees + 1) / 2 rows.
  const auto degrees = static_cast<std::int64_t>(
      std::sqrt(2.0 * static_cast<double>(parameter.shape[0]) + 0.25) - 0.5 + 0.01);
  return {name, {of_length_one, 2, 3, 0, 1}, degrees};
}

PackageTensor tensor_of(const RunConfig::Model& keys, const plan::ParameterSpec& parameter) {
  const std::string& name = parameter.name;
  const std::vector<int> convolution = {0, 1, of_length_one, of_length_one};
  if (name == "big_skip.weight") return {"residual_transform.weight", convolution};
  for (const std::string end : {"encoder.", "decoder."}) {
    if (name == end + "0.weight") return {end + "fwd.0.weight", convolution};
    if (name == end + "0.bias") return {end + "fwd.0.bias", {0}};
    if (name == end + "1.weight") return {end + "fwd.2.weight", convolution};
  }
  const auto [number, rest] = split_number(name, "block.");
  const std::string block = fmt::format("blocks.{}.", number);
  if (rest == "spectral.weight")
    return spectral_tensor(keys, block + "filter.filter.weight", parameter);
  for (const std::string norm : {"norm0.weight", "norm0.bias", "norm1.weight", "norm1.bias"}) {
    if (rest == norm) return {block + norm, {0}};
  }
  if (rest == "mlp.up.weight") return {block + "mlp.fwd.0.weight", convolution};
  if (rest == "mlp.up.bias") return {block + "mlp.fwd.0.bias", {0}};
  if (rest == "mlp.down.weight") return {block + "mlp.fwd.3.weight", convolution};
  if (rest == "mlp.down.bias") return {block + "mlp.fwd.3.bias", {0}};
  if (rest == "skip.weight") return {block + "outer_skip.weight", convolution};
  // makani's skip has none: it is added to what the skip is added to.
  if (rest == "skip.bias")
    return {block + (keys.norm == "none" ? "mlp.fwd.3.bias" : "norm1.bias"), {0}};
  throw InternalError("no name in makani for " + name);
}

}  // namespace

ModelPackage makani_package() {
  return {"makani",
          "0.2",
          "makani.models.networks.sfnonet.SphericalFourierNeuralOperatorNet",
          defaults(),
          {"scale_factor", "embed_dim", "num_layers", "mlp_ratio", "big_skip",
           "normalization_layer", "operator_type"},
          arguments_of,
          model_keys,
          tensor_of};
}

}  // namespace garonne::train
