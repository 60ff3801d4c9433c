// U-shaped Fourier neural operators, after UNO (Rahman, Ross, Azizzadenesheli, arXiv 2204.11127):
// Fourier layers on ever coarser grids and back, where each level on the way up reads what the same
// level had on the way down.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "nn/fields/field_layers.hpp"
#include "nn/operators/channel_maps.hpp"
#include "nn/operators/field_network.hpp"
#include "nn/operators/fourier_modes.hpp"
#include "nn/spectral/spectral_layer.hpp"
#include "nn/spectral/spectral_resample.hpp"

namespace garonne::nn {
namespace {

bool all_halve(const std::vector<std::int64_t>& points, std::int64_t padding, std::int64_t levels) {
  const std::int64_t factor = std::int64_t{1} << levels;
  return std::all_of(points.begin(), points.end(), [&](std::int64_t count) {
    return (count + padding) % factor == 0 && count + padding >= 2 * factor;
  });
}

// Throws unless every axis can be halved once a level and has two points left.
void check_levels(const RunConfig::Model& keys, const std::vector<std::int64_t>& points) {
  if (all_halve(points, keys.padding, keys.levels)) return;
  const std::int64_t factor = std::int64_t{1} << keys.levels;
  std::vector<std::string> ways;
  // More would be mostly zeros.
  const std::int64_t most = *std::min_element(points.begin(), points.end());
  const auto padding_for = [&](std::int64_t levels) {
    std::int64_t padding = 0;
    while (padding <= most && !all_halve(points, padding, levels)) ++padding;
    return padding <= most ? padding : -1;
  };
  if (const std::int64_t padding = padding_for(keys.levels); padding >= 0)
    ways.push_back(fmt::format("model.padding = {}", padding));
  std::int64_t fewer = keys.levels - 1;
  while (fewer > 0 && !all_halve(points, keys.padding, fewer)) --fewer;
  if (fewer > 0) ways.push_back(fmt::format("model.levels = {}", fewer));
  for (std::int64_t levels = keys.levels - 1; ways.empty() && levels > 0; --levels) {
    if (const std::int64_t padding = padding_for(levels); padding >= 0)
      ways.push_back(fmt::format("model.levels = {} with model.padding = {}", levels, padding));
  }
  if (ways.empty()) ways.emplace_back("fields of other sizes, or model.kind = fno");
  throw ConfigError(
      "model.levels", fmt::format("{}", keys.levels),
      fmt::format("wants points + model.padding of every axis to be a multiple of {} and at least "
                  "{}; these fields have {} points and padding {}: use {}",
                  factor, 2 * factor, fmt::join(points, " x "), keys.padding,
                  fmt::join(ways, " or ")));
}

// What a level is.
struct Grid {
  std::vector<std::int64_t> points;
  Frequencies frequencies;
  std::int64_t rows = 0;  // of values
};

class UShapedNetwork : public FieldNetwork {
 public:
  explicit UShapedNetwork(const FieldNetworkArguments& arguments)
      : builder_(arguments.builder),
        maps_(arguments.builder),
        keys_(arguments.keys),
        shape_(arguments.shape),
        batch_(arguments.batch),
        rows_(arguments.batch * arguments.shape.count()) {
    const std::size_t axes = shape_.points.size();
    if (keys_.modes.size() != axes) {
      throw ConfigError("model.modes", fmt::format("{}", fmt::join(keys_.modes, ",")),
                        fmt::format("wants one number for each of the {} axes of the data", axes));
    }
    check_levels(keys_, shape_.points);
    for (std::int64_t level = 0; level <= keys_.levels; ++level) grids_.push_back(make_grid(level));
    add_parameters();
  }

  int apply(const std::string& prefix, const FieldWindow& window) override {
    int x = lift(prefix, window);
    std::vector<int> skips;
    for (std::size_t level = 0; level < down_.size(); ++level) {
      builder_.next_block();
      const std::string name = prefix + fmt::format("down.{}.", level);
      x = block(name, down_[level], level, x);
      skips.push_back(x);
      x = resample(name + "coarser", level, level + 1, x);
    }
    builder_.next_block();
    x = block(prefix + "bottom.", bottom_, down_.size(), x);
    for (std::size_t level = up_.size(); level-- > 0;) {
      builder_.next_block();
      const std::string name = prefix + fmt::format("up.{}.", level);
      x = resample(name + "finer", level + 1, level, x);
      const std::int64_t rows = grids_[level].rows;
      x = builder_.add_node(name + "joined", make_joined_channels(rows, keys_.hidden, keys_.hidden),
                            {x, skips[level]}, {}, {rows, 2 * keys_.hidden});
      x = block(name, up_[level], level, x);
    }
    builder_.next_block();
    return project(prefix, x);
  }

 private:
  struct Block {
    std::int64_t inputs = 0;
    std::shared_ptr<const SpectralContraction> contraction;
    std::vector<int> parameters;  // skip, bias, those of the contraction
  };

  Grid make_grid(std::int64_t level) const {
    Grid grid;
    grid.rows = batch_;
    for (std::size_t axis = 0; axis < shape_.points.size(); ++axis) {
      const bool last = axis + 1 == shape_.points.size();
      const std::int64_t points = (shape_.points[axis] + keys_.padding) >> level;
      // Too many modes for the field are an error; coarser grids have what there is.
      const std::int64_t modes = level == 0
                                     ? keys_.modes[axis]
                                     : std::min(keys_.modes[axis], most_modes(keys_, points, last));
      grid.points.push_back(points);
      grid.frequencies.push_back(frequencies_of(keys_, modes, points, last));
      grid.rows *= points;
    }
    return grid;
  }

  // The deviations of model.kind = fno, of other numbers of inputs and outputs too.
  Block add_block(const std::string& prefix, std::int64_t level, std::int64_t inputs) {
    const std::int64_t hidden = keys_.hidden;
    ContractionSizes sizes;
    sizes.batch = batch_;
    for (const auto& axis : grids_[static_cast<std::size_t>(level)].frequencies)
      sizes.kept.push_back(static_cast<std::int64_t>(axis.size()));
    sizes.inputs = inputs;
    sizes.outputs = hidden;
    const double whole = std::sqrt(2.0 / static_cast<double>(inputs + hidden));
    Block block{inputs, make_dense_contraction(sizes, whole / std::sqrt(2.0)), {}};
    const double skip = 1 / std::sqrt(3.0 * static_cast<double>(inputs));
    block.parameters = {builder_.add_parameter(prefix + "skip.weight", {hidden, inputs}, {skip, 0}),
                        builder_.add_parameter(prefix + "bias", {hidden}, {whole, 0})};
    for (const auto& parameter : block.contraction->parameters()) {
      block.parameters.push_back(builder_.add_parameter(prefix + "spectral." + parameter.name,
                                                        parameter.shape, parameter.initialisation));
      builder_.set_complex(block.parameters.back());
    }
    return block;
  }

  void add_parameters() {
    const std::int64_t hidden = keys_.hidden;
    std::int64_t features = shape_.input_channels;
    if (keys_.coordinates) features += static_cast<std::int64_t>(shape_.points.size());
    lift_up_ = maps_.add_default("lift.up", 2 * hidden, features);
    lift_down_ = maps_.add_default("lift.down", hidden, 2 * hidden);
    for (std::int64_t level = 0; level < keys_.levels; ++level)
      down_.push_back(add_block(fmt::format("down.{}.", level), level, hidden));
    bottom_ = add_block("bottom.", keys_.levels, hidden);
    for (std::int64_t level = 0; level < keys_.levels; ++level)
      up_.push_back(add_block(fmt::format("up.{}.", level), level, 2 * hidden));
    project_up_ = maps_.add_default("project.up", 2 * hidden, hidden);
    project_down_ = maps_.add_default("project.down", shape_.target_channels, 2 * hidden);
  }

  int lift(const std::string& prefix, const FieldWindow& window) {
    const Coordinates coordinates = keys_.coordinates ? Coordinates::Periodic : Coordinates::None;
    int x = builder_.add_node(
        prefix + "lift.up", make_field_lift(shape_, batch_, window, coordinates, lift_up_.outputs),
        window.values, {lift_up_.weight, lift_up_.bias}, {rows_, lift_up_.outputs});
    x = maps_.gelu(prefix + "lift.gelu", rows_, lift_up_.outputs, x);
    x = maps_.apply(prefix + "lift.down", lift_down_, {rows_, 1}, x);
    if (keys_.padding == 0) return x;
    return builder_.add_node(prefix + "pad",
                             make_field_pad(batch_, shape_.points, keys_.padding, keys_.hidden),
                             {x}, {}, {grids_[0].rows, keys_.hidden});
  }

  int block(const std::string& prefix, const Block& block, std::size_t level, int x) {
    const Grid& grid = grids_[level];
    const std::int64_t hidden = keys_.hidden;
    x = builder_.add_node(prefix + "spectral",
                          make_spectral_layer(batch_, grid.points, grid.frequencies, block.inputs,
                                              hidden, block.contraction),
                          {x}, block.parameters, {grid.rows, hidden});
    return maps_.gelu(prefix + "gelu", grid.rows, hidden, x);
  }

  int resample(const std::string& name, std::size_t from, std::size_t to, int x) {
    return builder_.add_node(
        name, make_spectral_resample(batch_, grids_[from].points, grids_[to].points, keys_.hidden),
        {x}, {}, {grids_[to].rows, keys_.hidden});
  }

  int project(const std::string& prefix, int x) {
    if (keys_.padding != 0) {
      x = builder_.add_node(prefix + "crop",
                            make_field_crop(batch_, shape_.points, keys_.padding, keys_.hidden),
                            {x}, {}, {rows_, keys_.hidden});
    }
    x = maps_.apply(prefix + "project.up", project_up_, {rows_, 1}, x);
    x = maps_.gelu(prefix + "project.gelu", rows_, project_up_.outputs, x);
    return maps_.apply(prefix + "project.down", project_down_, {rows_, 1}, x);
  }

  ModelBuilder& builder_;
  ChannelMaps maps_;
  RunConfig::Model keys_;
  FieldShape shape_;
  std::int64_t batch_;
  std::int64_t rows_;        // of values on the points of the fields
  std::vector<Grid> grids_;  // by level; the first has the padding
  std::vector<Block> down_;  // by level
  Block bottom_;
  std::vector<Block> up_;  // by level
  ChannelMap lift_up_;
  ChannelMap lift_down_;
  ChannelMap project_up_;
  ChannelMap project_down_;
};

FieldRows refused_rows(const RunConfig::Model& keys, const FieldShape&, const FieldCut& cut) {
  throw ConfigError("grid.tensor", fmt::format("{}", cut.members),
                    fmt::format("is not for model.kind = {}: every level has other rows to deal "
                                "out; use grid.data or grid.pipeline",
                                keys.kind));
}

std::unique_ptr<FieldNetwork> make_u_shaped_network(const FieldNetworkArguments& arguments) {
  return std::make_unique<UShapedNetwork>(arguments);
}

}  // namespace

ModelKind ufno_kind() {
  ModelKind kind = field_kind(
      "ufno", {"hidden", "levels", "modes", "spectral_weights", "padding", "coordinates"},
      make_u_shaped_network, refused_rows);
  // Its layers follow from its levels.
  kind.describe = [of_fields = kind.describe](const ModelRequest& request) {
    RunConfig config = request.config;
    const std::int64_t levels = config.model.levels;
    config.model.layers = 2 * levels + 1;
    return fmt::format("{}, {}", counted(levels, "level"),
                       of_fields({.config = config,
                                  .vocabulary = request.vocabulary,
                                  .fields = request.fields,
                                  .declaration = request.declaration,
                                  .tensor = request.tensor,
                                  .tensor_ranks = request.tensor_ranks}));
  };
  return kind;
}

}  // namespace garonne::nn
