#include "nn/fields/field_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "nn/collectives.hpp"
#include "nn/fields/field_layers.hpp"
#include "nn/fields/field_loss_terms.hpp"
#include "nn/model_kind.hpp"
#include "nn/operators/field_network.hpp"

namespace garonne::nn {
namespace {

const ModelKind& field_kind_of(const std::string& name) {
  std::vector<std::string> names;
  for (const ModelKind& kind : model_kinds()) {
    if (kind.network == nullptr) continue;
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  throw ConfigError(
      "model.kind", name,
      fmt::format("is no model of fields of this build; there are {}", fmt::join(names, ", ")));
}

void check_shape(const FieldShape& shape) {
  expect(!shape.points.empty() && shape.points.size() <= 3 && shape.input_channels > 0 &&
             shape.target_channels > 0 && shape.rollout > 0,
         "a field has channels and one to three axes");
  expect(shape.push_forward >= 0 && shape.noise >= 0, "a count or a deviation below zero");
  expect(shape.members > 0, "an ensemble without members");
  const bool rolls = shape.push_forward + shape.rollout > 1;
  if (rolls && shape.input_channels < shape.target_channels) {
    const bool pushes = shape.push_forward > 0;
    throw ConfigError(pushes ? "train.push_forward" : "train.rollout",
                      fmt::format("{}", pushes ? shape.push_forward : shape.rollout),
                      fmt::format("wants an input that the prediction fits into; the input has {} "
                                  "channels and the prediction {}",
                                  shape.input_channels, shape.target_channels));
  }
}

// The input of step `step`: what is left of the loaded channels, then of the predictions so far.
FieldWindow window_of(const FieldShape& shape, int input, const std::vector<int>& predictions) {
  FieldWindow window;
  const auto add = [&](int value, bool loaded, bool differentiable, std::int64_t first,
                       std::int64_t channels) {
    const std::int64_t all = loaded ? shape.input_channels : shape.target_channels;
    window.parts.push_back(
        {static_cast<int>(window.values.size()), loaded, differentiable, first, all, channels});
    window.values.push_back(value);
  };
  std::int64_t passed =
      static_cast<std::int64_t>(predictions.size()) * shape.target_channels;  // channels moved out
  if (passed < shape.input_channels) add(input, true, false, passed, shape.input_channels - passed);
  passed = std::max<std::int64_t>(0, passed - shape.input_channels);
  for (std::size_t step = 0; step < predictions.size(); ++step) {
    const std::int64_t first = std::min(passed, shape.target_channels);
    passed -= first;
    const bool differentiable = static_cast<std::int64_t>(step) >= shape.push_forward;
    if (first < shape.target_channels)
      add(predictions[step], false, differentiable, first, shape.target_channels - first);
  }
  return window;
}

std::vector<FieldRows> rows_of_members(const ModelKind& kind, const RunConfig::Model& keys,
                                       const FieldShape& whole, const FieldCut& cut) {
  std::vector<FieldRows> rows;
  for (int member = 0; member < cut.members; ++member)
    rows.push_back(kind.rows(keys, whole, {member, cut.members}));
  return rows;
}

int add_input(ModelBuilder& builder, const FieldShape& shape, std::int64_t batch) {
  return builder.add_field_input("input", {batch, shape.input_channels, shape.count()});
}

Model finish(ModelBuilder& builder, const FieldShape& shape, std::int64_t batch) {
  // Each member has the part of a gradient that comes from its own rows and modes.
  if (shape.cut.cuts()) builder.set_uncut_replicated();
  Model model = builder.take();
  model.rows = shape.rows;
  model.batch = batch;
  model.sequence = shape.count();
  return model;
}

}  // namespace

std::int64_t FieldShape::whole_count() const {
  return rows.cut() ? count() / points[0] * rows.whole : count();
}

FieldShape cut_field(const FieldShape& whole, const FieldRows& rows, const FieldCut& cut) {
  FieldShape part = whole;
  const auto slots = static_cast<std::int64_t>(rows.slots.size());
  const std::int64_t in_row = whole.count() / whole.points[0];
  part.points[0] = slots;
  part.cut = cut;
  part.rows = rows;
  // Of [leading, rows, after].
  const auto cut_table = [&](const std::vector<double>& table, std::int64_t after) {
    const std::int64_t lines = static_cast<std::int64_t>(table.size()) / (rows.whole * after);
    std::vector<double> cut_out;
    for (std::int64_t line = 0; line < lines; ++line) {
      for (const std::int64_t row : rows.slots) {
        const auto first =
            table.begin() + (line * rows.whole + std::max<std::int64_t>(row, 0)) * after;
        if (row == FieldRows::none) {
          cut_out.insert(cut_out.end(), static_cast<std::size_t>(after), 0.0);
        } else {
          cut_out.insert(cut_out.end(), first, first + after);
        }
      }
    }
    return cut_out;
  };
  part.area_weights = cut_table(whole.area_weights, 1);
  const auto by_point = [&](const std::vector<double>& table) {
    return static_cast<std::int64_t>(table.size()) > whole.target_channels;
  };
  if (by_point(whole.target_mean)) part.target_mean = cut_table(whole.target_mean, in_row);
  if (by_point(whole.target_deviation))
    part.target_deviation = cut_table(whole.target_deviation, in_row);
  return part;
}

void check_members(const FieldCut& cut, const std::string& why,
                   const std::function<bool(std::int64_t members)>& fits) {
  const std::int64_t members = cut.members;
  if (fits(members)) return;
  std::int64_t below = members - 1;
  while (below > 1 && !fits(below)) --below;
  std::int64_t above = members + 1;
  while (above <= 2 * members && !fits(above)) ++above;
  throw ConfigError("grid.tensor", fmt::format("{}", members),
                    fmt::format("{}; the nearest that work: {}", why,
                                above > 2 * members ? fmt::format("{}", below)
                                                    : fmt::format("{} and {}", below, above)));
}

std::int64_t FieldShape::count() const {
  return std::accumulate(points.begin(), points.end(), std::int64_t{1}, std::multiplies<>());
}

namespace {

Model make_on_fields(const ModelRequest& request) {
  const RunConfig& config = request.config;
  if (config.grid.sequence_parallel) {
    throw ConfigError("grid.sequence_parallel", "true",
                      fmt::format("has no meaning for model.kind = {}: grid.tensor deals out the "
                                  "rows of its fields everywhere; leave it out",
                                  config.model.kind));
  }
  return make_field_model(config.model, config.train.loss, request.fields, config.train.micro_batch,
                          request.declaration, {request.tensor, request.tensor_ranks});
}

std::string describe_on_fields(const ModelRequest& request) {
  const RunConfig::Model& keys = request.config.model;
  const FieldShape& fields = request.fields;
  return fmt::format(
             "{}, hidden {}, {} points, {} to {}{}", counted(keys.layers, "layer"), keys.hidden,
             fmt::join(fields.points, " x "), counted(fields.input_channels, "channel"),
             fields.target_channels,
             fields.rollout == 1 ? "" : fmt::format(", {} steps a sample", fields.rollout)) +
         (fields.members == 1 ? "" : fmt::format(", {} members", fields.members)) +
         (fields.push_forward == 0
              ? ""
              : fmt::format(", after {} without gradients", fields.push_forward));
}

}  // namespace

ModelKind field_kind(const std::string& name, std::vector<std::string> keys,
                     std::unique_ptr<FieldNetwork> (*network)(const FieldNetworkArguments&),
                     FieldRows (*rows)(const RunConfig::Model&, const FieldShape&,
                                       const FieldCut&)) {
  return {.name = name,
          .keys = std::move(keys),
          .learns_from = LearnsFrom::Fields,
          .losses = field_losses(),
          .make = make_on_fields,
          .describe = describe_on_fields,
          .network = network,
          .rows = rows};
}

Model make_field_model(const RunConfig::Model& keys, const std::string& loss,
                       const FieldShape& whole, std::int64_t batch, const Declaration& declaration,
                       const FieldCut& cut) {
  const ModelKind& kind = field_kind_of(keys.kind);
  refuse_unused_keys(keys, kind);
  check_shape(whole);
  const FieldShape shape = cut.cuts() ? cut_field(whole, kind.rows(keys, whole, cut), cut) : whole;
  ModelBuilder builder(declaration);
  // What the network has at once: all members of the samples.
  const std::int64_t at_once = batch * shape.members;
  const std::int64_t points = at_once * shape.count();
  const std::int64_t steps = shape.push_forward + shape.rollout;
  const auto add_fields = [&](const std::string& name, std::int64_t count) {
    return builder.add_field_input(name, {count, batch, shape.target_channels, shape.count()});
  };
  const int input = add_input(builder, shape, batch);
  const int target = add_fields("target", shape.rollout);
  const int mask = shape.masked ? add_fields("mask", steps) : -1;
  const auto network = kind.network({builder, keys, shape, at_once});
  std::vector<int> predictions;  // as later steps read them
  std::vector<int> losses;
  for (std::int64_t step = 0; step < steps; ++step) {
    if (step > 0) builder.next_block();
    const bool counts = step >= shape.push_forward;
    builder.set_gradients(counts);
    const std::string prefix = steps > 1 ? fmt::format("step.{}.", step) : "";
    const int prediction = network->apply(prefix, window_of(shape, input, predictions));
    if (counts) {
      std::vector<int> compared = {prediction, target};
      if (shape.masked) compared.push_back(mask);
      const std::int64_t number = step - shape.push_forward;
      std::unique_ptr<Node> node;
      // What a member makes are `rows` of so many numbers.
      const auto gather = [&](const std::string& what, std::unique_ptr<Node> own, std::int64_t rows,
                              std::int64_t numbers) {
        const int mine = builder.add_double_node(prefix + what, std::move(own), std::move(compared),
                                                 {rows, numbers});
        const std::int64_t all = cut.members * rows;
        compared = {builder.add_double_node(prefix + "gathered_" + what,
                                            make_gather_statistics(all * numbers, cut.members),
                                            {mine}, {all, numbers})};
      };
      if (cut.cuts() && needs_whole_field(loss)) {
        gather("fields", make_compared_fields(shape, batch, number),
               static_cast<std::int64_t>(compared.size()), points * shape.target_channels);
        node = make_whole_field_loss(loss, whole, rows_of_members(kind, keys, whole, cut), batch);
      } else if (cut.cuts()) {
        gather("norms", make_field_norms(loss, shape, batch, number), 3,
               field_norm_groups(loss, shape, batch));
        node = make_gathered_field_loss(loss, shape, batch);
      } else {
        node = make_field_loss(loss, shape, batch, number);
      }
      if (shape.rollout == 1) {
        builder.add_loss("loss", std::move(node), std::move(compared), {});
      } else {
        losses.push_back(
            builder.add_double_node(prefix + "loss", std::move(node), std::move(compared), {}));
      }
    }
    const bool fills = shape.masked && step + 1 < steps;
    predictions.push_back(
        fills ? builder.add_node(prefix + "filled", make_field_fill(shape, at_once, step),
                                 {prediction, mask}, {}, {points, shape.target_channels})
              : prediction);
  }
  if (shape.rollout > 1) builder.add_loss("loss", make_mean_loss(shape.rollout), losses, {});
  return finish(builder, shape, batch);
}

Model make_field_predictor(const RunConfig::Model& keys, const FieldShape& shape,
                           std::int64_t batch, const Declaration& declaration) {
  const ModelKind& kind = field_kind_of(keys.kind);
  refuse_unused_keys(keys, kind);
  check_shape(shape);
  ModelBuilder builder(declaration);
  const int input = add_input(builder, shape, batch);
  FieldShape without_noise = shape;
  without_noise.noise = 0;
  without_noise.members = 1;
  kind.network({builder, keys, without_noise, batch})->apply("", window_of(shape, input, {}));
  return finish(builder, shape, batch);
}

}  // namespace garonne::nn
