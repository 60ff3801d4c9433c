#include "train/setup/size_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace garonne::train {
namespace {

// Parameter, gradient, two moments and a master, of 8 bytes.
constexpr double bytes_of_a_parameter = 5 * 8;
// No layer has more values than this of the size of its largest, each with its gradient.
constexpr double values_of_a_layer = 64 * 8;
constexpr double most_bytes = 0x1p56;
// Summed over the micro-batches of a step: what 64 bits hold.
constexpr double most_bytes_of_a_step = 0x1p62;

// Measured: tables that grow with the square of the layers, 1.4 GiB for 512.
constexpr std::int64_t most_planned_layers = 512;
// Measured: about 4.4 KiB of planning a node and micro-batch.
constexpr std::int64_t most_planned_nodes = std::int64_t{1} << 18;

// Refuses by the largest of `keys`, whose value is shown; the others are named beside it.
[[noreturn]] void refuse(const RunConfig& config, std::initializer_list<const char*> keys,
                         const std::string& reason) {
  std::string largest;
  std::string value;
  double most = -1;
  std::string others;
  for (const KeySpec& key : config_keys()) {
    if (std::find(keys.begin(), keys.end(), key.name) == keys.end()) continue;
    const std::string text = key.get(config);
    const double number = key.type == KeyType::Integer ? std::stod(text) : 0;
    if (number > most) {
      most = number;
      largest = key.name;
      value = text;
    }
  }
  for (const KeySpec& key : config_keys()) {
    if (key.name == largest || std::find(keys.begin(), keys.end(), key.name) == keys.end())
      continue;
    others += fmt::format("{}{} = {}", others.empty() ? "with " : ", ", key.name, key.get(config));
  }
  throw ConfigError(largest, value, others + (others.empty() ? "" : " ") + reason);
}

// In double precision, which does not overflow here and is exact enough for a limit.
double real(std::int64_t value) {
  return static_cast<double>(value);
}

// `steps`: times that the layers follow one another in a step.
void check_layers(const RunConfig& config, std::int64_t steps,
                  std::initializer_list<const char*> keys) {
  if (config.model.layers <= most_planned_layers / steps) return;
  refuse(config, keys,
         fmt::format("makes {} layers in a row; a plan has at most {}", config.model.layers * steps,
                     most_planned_layers));
}

}  // namespace

void check_text_sizes(const RunConfig& config, const DataFacts& facts) {
  check_layers(config, 1, {"model.layers"});
  const auto& model = config.model;
  const double hidden = real(model.hidden);
  const double vocabulary = real(std::max(model.vocabulary, facts.vocabulary));
  const double tokens = real(config.train.micro_batch) * real(model.sequence);
  const double parameters =
      (vocabulary + real(model.sequence)) * hidden +
      real(model.layers) * (12 * hidden * hidden + 13 * hidden + 3 * hidden * real(model.inner));
  if (parameters * bytes_of_a_parameter > most_bytes) {
    refuse(config,
           {"model.hidden", "model.layers", "model.vocabulary", "model.sequence", "model.inner"},
           "makes parameters of more than 2^56 bytes with their moments");
  }
  // Attention by its definition has sequence^2 values a head.
  const double largest = tokens * std::max({4 * hidden, vocabulary, real(model.inner),
                                            real(model.heads) * real(model.sequence)});
  const double micro_batches =
      std::max(1.0, real(config.train.global_batch) / real(config.train.micro_batch));
  if (largest * values_of_a_layer * (real(model.layers) + 2) * micro_batches >
      most_bytes_of_a_step) {
    refuse(config,
           {"model.hidden", "model.layers", "model.vocabulary", "model.sequence", "model.heads",
            "model.inner", "train.micro_batch", "train.global_batch"},
           "makes values of more than 2^62 bytes a step");
  }
}

void check_field_sizes(const RunConfig& config, const DataFacts& facts) {
  check_layers(config, config.train.rollout + config.train.push_forward,
               {"model.layers", "train.rollout", "train.push_forward"});
  const auto& model = config.model;
  const double hidden = real(model.hidden);
  double points = 1;
  double modes = 1;
  for (const std::int64_t size : facts.fields.points)
    points *= real(size) + 2 * real(model.padding);
  for (const std::int64_t count : model.modes) modes *= 2 * real(count);
  const double ratio = 4 + model.mlp_ratio + model.rank + model.hard_thresholding;
  const double patch = real(model.patch) * real(model.patch);
  const double channels = real(facts.fields.input_channels) + real(facts.fields.target_channels);
  const double parameters =
      real(model.layers) * hidden * hidden * (2 * std::max(points, modes) + 2) * ratio +
      4 * hidden * channels * patch;
  if (parameters * bytes_of_a_parameter > most_bytes) {
    refuse(config,
           {"model.hidden", "model.layers", "model.modes", "model.padding", "model.patch",
            "model.mlp_ratio"},
           "makes parameters of more than 2^56 bytes with their moments");
  }
  const double micro_batches =
      std::max(1.0, real(config.train.global_batch) / real(config.train.micro_batch));
  const double steps = real(config.train.rollout) + real(config.train.push_forward);
  const double largest = real(config.train.micro_batch) * real(config.train.members) *
                         std::max(points, modes) * (hidden * ratio + channels);
  if (largest * values_of_a_layer * (real(model.layers) + 2) * steps * micro_batches >
      most_bytes_of_a_step) {
    refuse(config,
           {"model.hidden", "model.layers", "model.modes", "model.padding", "model.mlp_ratio",
            "train.micro_batch", "train.members", "train.global_batch", "train.rollout",
            "train.push_forward"},
           "makes values of more than 2^62 bytes a step");
  }
}

void check_planned_nodes(const RunConfig& config, const plan::ModelGraph& graph,
                         std::int64_t micro_batches) {
  const auto nodes = static_cast<std::int64_t>(graph.nodes.size());
  if (micro_batches <= most_planned_nodes / std::max<std::int64_t>(nodes, 1)) return;
  throw ConfigError(
      "train.global_batch", fmt::format("{}", config.train.global_batch),
      fmt::format("makes {} micro-batches a step on a rank, of a model of {} nodes; a plan has at "
                  "most {} nodes in all: give a larger train.micro_batch or more of grid.data",
                  micro_batches, nodes, most_planned_nodes));
}

}  // namespace garonne::train
