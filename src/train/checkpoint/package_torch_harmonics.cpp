// The spherical Fourier neural operator in the examples of torch-harmonics: model.kind sfno with
// model.block = torch-harmonics.
#include <fmt/format.h>

#include "base/error.hpp"
#include "train/checkpoint/package_form.hpp"

namespace garonne::train {
namespace {

void check_kind(const RunConfig::Model& keys, const nn::FieldShape& fields) {
  if (keys.kind != "sfno") {
    throw ConfigError("model.kind", keys.kind,
                      "has no class in torch-harmonics that computes the same; there is that of "
                      "sfno with model.block = torch-harmonics");
  }
  if (keys.block != "torch-harmonics") {
    throw ConfigError("model.block", keys.block,
                      "is not of torch-harmonics: export --to makani, or set model.block = "
                      "torch-harmonics");
  }
  if (keys.spectral_operator != "dhconv") {
    throw ConfigError("model.spectral_operator", keys.spectral_operator,
                      "is none of the class in torch-harmonics; set "
                      "model.spectral_operator = dhconv");
  }
  if (keys.scale_factor == 1 && fields.grid != "legendre-gauss" && keys.layers > 1) {
    throw ConfigError(
        "model.scale_factor", "1",
        fmt::format("computes something else in torch-harmonics on the grid {}: its skips do not "
                    "change the grid where the numbers of points are equal; set 2 or more",
                    fields.grid));
  }
}

nlohmann::ordered_json arguments_of(const RunConfig::Model& keys, const nn::FieldShape& fields) {
  check_kind(keys, fields);
  expect_grid_of_package(fields.grid);
  return {{"img_size", fields.points},
          {"grid", fields.grid},
          {"grid_internal", "legendre-gauss"},
          {"scale_factor", keys.scale_factor},
          {"in_chans", fields.input_channels},
          {"out_chans", fields.target_channels},
          {"embed_dim", keys.hidden},
          {"num_layers", keys.layers},
          {"activation_function", "gelu"},
          {"encoder_layers", 1},
          {"use_mlp", true},
          {"mlp_ratio", keys.mlp_ratio == 0 ? 2.0 : keys.mlp_ratio},
          {"drop_rate", 0.0},
          {"drop_path_rate", 0.0},
          {"normalization_layer", keys.norm == "none" ? "none" : "instance_norm"},
          {"hard_thresholding_fraction", 1.0},
          {"residual_prediction", keys.big_skip},
          {"pos_embed", "none"},
          {"bias", false}};
}

nlohmann::ordered_json defaults() {
  return {{"img_size", {128, 256}},
          {"grid", "equiangular"},
          {"grid_internal", "legendre-gauss"},
          {"scale_factor", 3},
          {"in_chans", 3},
          {"out_chans", 3},
          {"embed_dim", 256},
          {"num_layers", 4},
          {"activation_function", "gelu"},
          {"encoder_layers", 1},
          {"use_mlp", true},
          {"mlp_ratio", 2.0},
          {"drop_rate", 0.0},
          {"drop_path_rate", 0.0},
          {"normalization_layer", "none"},
          {"hard_thresholding_fraction", 1.0},
          {"residual_prediction", false},
          {"pos_embed", "none"},
          {"bias", false}};
}

RunConfig::Model model_keys(const JsonPlace& arguments, const nn::FieldShape&) {
  return spherical_keys(arguments, "torch-harmonics", "residual_prediction");
}

PackageTensor tensor_of(const RunConfig::Model&, const plan::ParameterSpec& parameter) {
  const std::string& name = parameter.name;
  const std::vector<int> convolution = {0, 1, of_length_one, of_length_one};
  if (name == "encoder.0.weight" || name == "decoder.0.weight") return {name, convolution};
  if (name == "big_skip.weight") return {"residual_projection.weight", convolution};
  const auto [number, rest] = split_number(name, "block.");
  const std::string block = fmt::format("blocks.{}.", number);
  // [degrees, inputs, outputs] here.
  if (rest == "spectral.weight") return {block + "global_conv.weight", {2, 1, 0}};
  if (rest == "norm0.weight") return {block + "norm.weight", {0}};
  if (rest == "norm0.bias") return {block + "norm.bias", {0}};
  if (rest == "mlp.up.weight") return {block + "mlp.fwd.0.weight", convolution};
  if (rest == "mlp.up.bias") return {block + "mlp.fwd.0.bias", {0}};
  if (rest == "mlp.down.weight") return {block + "mlp.fwd.2.weight", convolution};
  throw InternalError("no name in torch-harmonics for " + name);
}

}  // namespace

ModelPackage torch_harmonics_package() {
  return {"torch-harmonics",
          "0.9",
          "torch_harmonics.examples.models.sfno.SphericalFourierNeuralOperator",
          defaults(),
          {"scale_factor", "embed_dim", "num_layers", "mlp_ratio", "residual_prediction",
           "normalization_layer"},
          arguments_of,
          model_keys,
          tensor_of};
}

}  // namespace garonne::train
