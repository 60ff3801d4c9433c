// neuraloperator's FNO, dense and tensorised: model.kind fno and tfno with model.block = neuralop.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/key_limits.hpp"
#include "base/lower_case.hpp"
#include "train/checkpoint/package_form.hpp"

namespace garonne::train {
namespace {

constexpr const char* package_name = "neuraloperator";

bool is_corners(const RunConfig::Model& keys) {
  return keys.spectral_weights == "corners";
}

// n_modes counts frequencies of both signs, on the last axis too.
std::vector<std::int64_t> modes_there(const RunConfig::Model& keys) {
  std::vector<std::int64_t> modes = keys.modes;
  if (!is_corners(keys)) return modes;
  for (std::int64_t& count : modes) count *= 2;
  // m frequencies from 0 on: what n / 2 + 1 is.
  modes.back() -= 1;
  return modes;
}

void check_kind(const RunConfig::Model& keys, const nn::FieldShape& fields) {
  if (keys.kind != "fno" && keys.kind != "tfno") {
    throw ConfigError(
        "model.kind", keys.kind,
        "has no class in neuraloperator that computes the same; there are those of fno and tfno");
  }
  if (keys.block == "li") {
    throw ConfigError("model.block", keys.block,
                      "has no class in neuraloperator that computes the same; set "
                      "model.block = neuralop");
  }
  if (keys.padding % 2 != 0) {
    throw ConfigError("model.padding", fmt::format("{}", keys.padding),
                      "cannot be: neuraloperator pads both ends alike; set an even number");
  }
  for (std::size_t axis = 0; axis + 1 < fields.points.size(); ++axis) {
    if ((fields.points[axis] + keys.padding) % 2 == 0) continue;
    throw ConfigError(
        "--to", package_name,
        fmt::format("computes something else on {} points: it shifts the frequencies of an odd "
                    "number of points by one on their way back (all axes but the last)",
                    fmt::join(fields.points, " × ")));
  }
}

nlohmann::ordered_json arguments_of(const RunConfig::Model& keys, const nn::FieldShape& fields) {
  check_kind(keys, fields);
  const bool factorised = keys.kind == "tfno";
  nlohmann::ordered_json padding = nullptr;
  if (keys.padding != 0) {
    padding = nlohmann::ordered_json::array();
    // Of a length; the library rounds what comes of it.
    for (const std::int64_t count : fields.points)
      padding.push_back(static_cast<double>(keys.padding / 2) / static_cast<double>(count));
  }
  nlohmann::ordered_json position = nullptr;
  if (keys.coordinates) position = "grid";
  nlohmann::ordered_json factorization = nullptr;
  if (factorised) factorization = keys.factorization == "cp" ? "CP" : "Tucker";
  return {{"n_modes", modes_there(keys)},
          {"in_channels", fields.input_channels},
          {"out_channels", fields.target_channels},
          {"hidden_channels", keys.hidden},
          {"n_layers", keys.layers},
          {"lifting_channel_ratio", 2},
          {"projection_channel_ratio", 2},
          {"positional_embedding", position},
          {"norm", nullptr},
          {"complex_data", false},
          {"use_channel_mlp", true},
          {"channel_mlp_dropout", 0},
          {"channel_mlp_expansion", keys.mlp_ratio == 0 ? 0.5 : keys.mlp_ratio},
          {"channel_mlp_skip", "soft-gating"},
          {"fno_skip", "linear"},
          {"resolution_scaling_factor", nullptr},
          {"domain_padding", padding},
          {"fno_block_precision", "full"},
          {"stabilizer", nullptr},
          {"max_n_modes", nullptr},
          {"factorization", factorization},
          {"rank", factorised ? keys.rank : 1.0},
          {"fixed_rank_modes", false},
          {"implementation", factorised ? keys.implementation : "factorized"},
          {"decomposition_kwargs", nullptr},
          {"separable", false},
          {"preactivation", false}};
}

nlohmann::ordered_json defaults() {
  nn::FieldShape fields;
  fields.points = {2, 2};
  RunConfig::Model keys;
  keys.kind = "fno";
  nlohmann::ordered_json all = arguments_of(keys, fields);
  for (const char* needed : {"n_modes", "in_channels", "out_channels", "hidden_channels"})
    all.erase(needed);
  return all;
}

// A fraction of each axis, or one for all of them; here one number of points for all.
std::int64_t padding_of(const JsonPlace& place, const nn::FieldShape& fields) {
  if (place.json().is_null()) return 0;
  const std::vector<double> given =
      place.json().is_number() ? std::vector<double>(fields.points.size(), place.number(0, 1))
                               : place.numbers();
  if (given.size() != fields.points.size())
    place.refuse(fmt::format("wants a number for each of {} axes", fields.points.size()));
  std::int64_t points = -1;
  for (std::size_t axis = 0; axis < given.size(); ++axis) {
    if (given[axis] < 0 || given[axis] > 1) place.refuse("wants numbers from 0 to 1");
    const auto of_axis = static_cast<std::int64_t>(
        std::nearbyint(given[axis] * static_cast<double>(fields.points[axis])));
    if (points >= 0 && of_axis != points) {
      place.refuse(
          fmt::format("is {} points of one axis and {} of another; here they are as many "
                      "on all",
                      points, of_axis));
    }
    points = of_axis;
  }
  return 2 * points;
}

RunConfig::Model model_keys(const JsonPlace& arguments, const nn::FieldShape& fields) {
  RunConfig::Model keys;
  keys.kind = "fno";
  keys.block = "neuralop";
  keys.modes = arguments.key("n_modes").integers(1, most_width);
  keys.hidden = arguments.key("hidden_channels").integer(1, most_width);
  keys.layers = arguments.key("n_layers").integer(1, most_layers);
  keys.mlp_ratio = arguments.key("channel_mlp_expansion").number(0, most_ratio);
  keys.padding = padding_of(arguments.key("domain_padding"), fields);
  const JsonPlace position = arguments.key("positional_embedding");
  keys.coordinates = !position.json().is_null();
  if (keys.coordinates && position.text() != "grid") position.refuse("must be \"grid\" or null");
  const JsonPlace factorization = arguments.key("factorization");
  if (factorization.json().is_null()) return keys;
  keys.kind = "tfno";
  keys.factorization = lower_case(factorization.text());
  if (keys.factorization != "tucker" && keys.factorization != "cp")
    factorization.refuse("must be null, Tucker or CP");
  keys.rank = arguments.key("rank").number();
  keys.implementation = arguments.key("implementation").text();
  if (keys.implementation != "factorized" && keys.implementation != "reconstructed")
    arguments.key("implementation").refuse("must be factorized or reconstructed");
  return keys;
}

// [modes of each axis…, inputs, outputs], which the library has at the front.
std::vector<int> channels_first(std::size_t axes) {
  std::vector<int> order = {static_cast<int>(axes), static_cast<int>(axes) + 1};
  for (std::size_t axis = 0; axis < axes; ++axis) order.push_back(static_cast<int>(axis));
  return order;
}

PackageTensor spectral_tensor(const RunConfig::Model& keys, const std::string& prefix,
                              const std::string& part) {
  const std::string weight = prefix + "weight.";
  const std::size_t axes = keys.modes.size();
  if (part == "weight") return {weight + "tensor", channels_first(axes)};
  if (part == "core") return {weight + "core", channels_first(axes)};
  if (part == "weights") return {weight + "weights", {0}};
  const std::string factor = weight + "factors.factor_";
  if (part == "inputs") return {factor + "0", {0, 1}};
  // [rank, outputs] here, every factor [size, rank] there.
  if (part == "outputs") return {factor + "1", {1, 0}};
  if (part.rfind("axis.", 0) == 0)
    return {fmt::format("{}{}", factor, 2 + std::stoi(part.substr(5))), {0, 1}};
  throw InternalError("no name in neuraloperator for the factor " + part);
}

PackageTensor tensor_of(const RunConfig::Model& keys, const plan::ParameterSpec& parameter) {
  const std::string& name = parameter.name;
  const auto [number, rest] = split_number(name, "layer.");
  if (number.empty()) {
    const bool bias = parameter.shape.size() == 1;
    const std::string leaf = bias ? ".bias" : ".weight";
    const std::vector<int> axes = pointwise_axes(parameter, bias ? 0 : 1);
    for (const auto& [ours, theirs] : {std::pair{"lift.up", "lifting.fcs.0"},
                                       {"lift.down", "lifting.fcs.1"},
                                       {"project.up", "projection.fcs.0"},
                                       {"project.down", "projection.fcs.1"}}) {
      if (name == ours + leaf) return {theirs + leaf, axes};
    }
    throw InternalError("no name in neuraloperator for " + name);
  }
  const auto ones = static_cast<int>(keys.modes.size());
  const std::string convolution = fmt::format("fno_blocks.convs.{}.", number);
  if (rest == "bias") return {convolution + "bias", pointwise_axes(parameter, ones)};
  if (rest == "skip.weight")
    return {fmt::format("fno_blocks.fno_skips.{}.conv.weight", number), {0, 1, of_length_one}};
  if (rest == "gate") {
    std::vector<int> axes = pointwise_axes(parameter, ones);
    axes.insert(axes.begin(), of_length_one);
    return {fmt::format("fno_blocks.channel_mlp_skips.{}.weight", number), axes};
  }
  if (rest.rfind("spectral.", 0) == 0) return spectral_tensor(keys, convolution, rest.substr(9));
  const std::string mlp = fmt::format("fno_blocks.channel_mlp.{}.fcs.", number);
  if (rest == "mlp.up.weight") return {mlp + "0.weight", {0, 1, of_length_one}};
  if (rest == "mlp.up.bias") return {mlp + "0.bias", {0}};
  if (rest == "mlp.down.weight") return {mlp + "1.weight", {0, 1, of_length_one}};
  if (rest == "mlp.down.bias") return {mlp + "1.bias", {0}};
  throw InternalError("no name in neuraloperator for " + name);
}

}  // namespace

ModelPackage neuraloperator_package() {
  return {package_name,
          "2.0",
          "neuralop.models.fno.FNO",
          defaults(),
          {"n_modes", "hidden_channels", "n_layers", "channel_mlp_expansion", "domain_padding",
           "positional_embedding", "factorization"},
          arguments_of,
          model_keys,
          tensor_of};
}

}  // namespace garonne::train
