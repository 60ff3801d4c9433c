// Adaptive Fourier neural operators (Guibas et al., arXiv 2111.13587) as FourCastNet has them
// (Pathak et al., arXiv 2202.11214): patches, then blocks of a spectral filter and an MLP.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "nn/fields/field_layers.hpp"
#include "nn/fields/field_window.hpp"
#include "nn/layers/layers.hpp"
#include "nn/operators/channel_maps.hpp"
#include "nn/operators/field_network.hpp"
#include "nn/spectral/afno_layers.hpp"
#include "nn/spectral/spectrum_collectives.hpp"

namespace garonne::nn {
namespace {

constexpr double afno_norm_epsilon = 1e-6;
constexpr double deviation = 0.02;  // FourCastNet's, of all weights

std::string patches_that_work(std::int64_t rows, std::int64_t columns) {
  std::vector<std::int64_t> sizes;
  const std::int64_t common = std::gcd(rows, columns);
  for (std::int64_t size = 1; size <= common; ++size) {
    if (common % size == 0) sizes.push_back(size);
  }
  if (sizes.size() > 1) return fmt::format("use one of {}", fmt::join(sizes, ", "));
  // As with both poles, of which published data sets leave out the last row.
  return fmt::format(
      "only patches of 1 do, which are as many as points; fields of {} rows, of which the last is "
      "left out when the files are made, can have others, and fno and sfno take all rows",
      rows - 1);
}

void check_patches(const RunConfig::Model& keys, const FieldShape& shape) {
  if (shape.points.size() != 2) {
    throw ConfigError("model.kind", keys.kind,
                      fmt::format("wants fields of two axes; these have {}", shape.points.size()));
  }
  for (const std::int64_t count : shape.points) {
    if (count % keys.patch == 0) continue;
    throw ConfigError(
        "model.patch", fmt::format("{}", keys.patch),
        fmt::format("must divide the {} × {} points of the fields: {}", shape.points[0],
                    shape.points[1], patches_that_work(shape.points[0], shape.points[1])));
  }
}

class AdaptiveNetwork : public FieldNetwork {
 public:
  explicit AdaptiveNetwork(const FieldNetworkArguments& arguments)
      : builder_(arguments.builder),
        maps_(arguments.builder),
        keys_(arguments.keys),
        shape_(arguments.shape),
        batch_(arguments.batch) {
    check();
    const std::int64_t slots = shape_.points[0] / keys_.patch;
    rows_ = cuts() ? shape_.rows.whole / keys_.patch : slots;
    columns_ = shape_.points[1] / keys_.patch;
    tokens_ = slots * columns_;
    transform_ = std::make_shared<SpectralTransform>(
        std::vector<std::int64_t>{slots, columns_}, frequencies(),
        cuts() ? run_of_rows(rows_, rows_, shape_.cut) : FieldRows());
    spectrum_.outer = 2 * batch_;
    spectrum_.columns = keys_.hidden;
    spectrum_.begins = even_runs(transform_->modes(), shape_.cut.members);
    blocks_ = {batch_, spectrum_.slots(), keys_.spectral_blocks,
               keys_.hidden / keys_.spectral_blocks};
    add_parameters();
  }

  int apply(const std::string& prefix, const FieldWindow& window) override {
    const std::int64_t patch_elements = shape_.input_channels * keys_.patch * keys_.patch;
    int x = builder_.add_node(prefix + "patches",
                              make_window_patches(shape_, batch_, window, keys_.patch),
                              window.values, {}, {batch_ * tokens_, patch_elements});
    x = maps_.apply(prefix + "patch", patch_, {batch_, tokens_}, x);
    x = builder_.add_node(prefix + "position", make_bias({batch_, 1}, tokens_ * keys_.hidden), {x},
                          {position_}, shape());
    for (std::size_t number = 0; number < layers_.size(); ++number) {
      builder_.next_block();
      x = block(prefix + fmt::format("block.{}.", number), layers_[number], x);
    }
    builder_.next_block();
    x = maps_.apply(prefix + "head", head_, {batch_, tokens_}, x);
    return builder_.add_node(
        prefix + "prediction",
        make_field_of_patches(shape_, batch_, keys_.patch, shape_.target_channels), {x}, {},
        {batch_ * shape_.count(), shape_.target_channels});
  }

 private:
  struct Pair {
    int weight = -1;
    int bias = -1;
  };
  struct Layer {
    Pair norm1;
    Pair filter1;
    Pair filter2;
    Pair norm2;
    ChannelMap up;
    ChannelMap down;
  };

  bool cuts() const { return shape_.cut.cuts(); }

  void check() const {
    check_patches(keys_, shape_);
    if (keys_.hidden % keys_.spectral_blocks != 0) {
      throw ConfigError("model.spectral_blocks", fmt::format("{}", keys_.spectral_blocks),
                        fmt::format("must divide model.hidden = {}", keys_.hidden));
    }
    if (keys_.norm != "auto" && keys_.norm != "layer")
      throw ConfigError("model.norm", keys_.norm, "is not for model.kind = afno; use layer");
  }

  // FourCastNet keeps a share of the rows of the spectrum around half their number, not around
  // zero, and as many of the columns from zero on.
  Frequencies frequencies() const {
    const std::int64_t half = rows_ / 2 + 1;
    const auto kept =
        static_cast<std::int64_t>(static_cast<double>(half) * keys_.hard_thresholding);
    Frequencies chosen(2);
    for (std::int64_t row = std::max<std::int64_t>(half - kept, 0);
         row < std::min(half + kept, rows_); ++row) {
      chosen[0].push_back(2 * row > rows_ ? row - rows_ : row);
    }
    for (std::int64_t column = 0; column < std::min(kept, columns_ / 2 + 1); ++column)
      chosen[1].push_back(column);
    if (chosen[0].empty() || chosen[1].empty()) {
      throw ConfigError("model.hard_thresholding", fmt::format("{}", keys_.hard_thresholding),
                        fmt::format("keeps no frequency of {} × {} tokens", rows_, columns_));
    }
    return chosen;
  }

  TensorShape shape() const { return {batch_ * tokens_, keys_.hidden}; }
  // Of a spectrum, whole or a member's piece.
  TensorShape spectrum_shape(std::int64_t modes) const { return {batch_, 2, modes, keys_.hidden}; }

  Pair add_norm(const std::string& name) {
    return {builder_.add_parameter(name + ".weight", {keys_.hidden}, {0, 1}),
            builder_.add_parameter(name + ".bias", {keys_.hidden}, {0, 0})};
  }
  Pair add_filter(const std::string& prefix, int which) {
    return {builder_.add_parameter(fmt::format("{}filter.weight{}", prefix, which),
                                   {2, blocks_.blocks, blocks_.size, blocks_.size}, {deviation, 0}),
            builder_.add_parameter(fmt::format("{}filter.bias{}", prefix, which),
                                   {2, blocks_.blocks, blocks_.size}, {deviation, 0})};
  }

  void add_parameters() {
    const std::int64_t hidden = keys_.hidden;
    const std::int64_t square = keys_.patch * keys_.patch;
    patch_ = maps_.add("patch", hidden, shape_.input_channels * square, deviation);
    // A member has those of its rows.
    Box box = even_box({rows_, hidden}, shape_.cut);
    for (auto* const lengths : {&box.global, &box.offset, &box.shape}) (*lengths)[0] *= columns_;
    position_ = builder_.add_parameter("position", {tokens_, hidden}, {deviation, 0}, box);
    const double ratio = keys_.mlp_ratio == 0 ? 4 : keys_.mlp_ratio;
    const auto width = static_cast<std::int64_t>(static_cast<double>(hidden) * ratio);
    if (width < 1) {
      throw ConfigError("model.mlp_ratio", fmt::format("{}", ratio),
                        fmt::format("leaves no channel of model.hidden = {}", hidden));
    }
    for (std::int64_t number = 0; number < keys_.layers; ++number) {
      const std::string prefix = fmt::format("block.{}.", number);
      Layer layer;
      layer.norm1 = add_norm(prefix + "norm1");
      layer.filter1 = add_filter(prefix, 1);
      layer.filter2 = add_filter(prefix, 2);
      layer.norm2 = add_norm(prefix + "norm2");
      layer.up = maps_.add(prefix + "mlp.up", width, hidden, deviation);
      layer.down = maps_.add(prefix + "mlp.down", hidden, width, deviation);
      layers_.push_back(layer);
    }
    head_ = maps_.add("head", square * shape_.target_channels, hidden, deviation, /*bias=*/false);
  }

  int norm(const std::string& name, const Pair& parameters, int x) {
    return builder_.add_node(name,
                             make_layer_norm({batch_, tokens_}, keys_.hidden, afno_norm_epsilon),
                             {x}, {parameters.weight, parameters.bias}, shape());
  }
  int filter(const std::string& name, const Pair& parameters, SpectralActivation activation,
             int x) {
    return builder_.add_state_node(
        name, make_spectral_block_linear(blocks_, activation, keys_.sparsity_threshold), {x},
        {parameters.weight, parameters.bias}, spectrum_shape(blocks_.modes));
  }
  int add(const std::string& name, int x, int y) {
    return builder_.add_node(name, make_dropout_add(name, {batch_, tokens_}, keys_.hidden, 0),
                             {x, y}, {}, shape());
  }

  int block(const std::string& prefix, const Layer& layer, int x) {
    const std::int64_t hidden = keys_.hidden;
    const int normal = norm(prefix + "norm1", layer.norm1, x);
    int y = builder_.add_state_node(
        prefix + "analysis",
        make_orthonormal_analysis(transform_, batch_, tokens_, rows_ * columns_, hidden), {normal},
        {}, spectrum_shape(spectrum_.entries()));
    if (cuts()) {
      y = builder_.add_state_node(prefix + "spectrum", make_sum_spectrum(spectrum_), {y}, {},
                                  spectrum_.piece_shape());
    }
    y = filter(prefix + "filter1", layer.filter1, SpectralActivation::Relu, y);
    y = filter(prefix + "filter2", layer.filter2, SpectralActivation::Shrink, y);
    if (cuts()) {
      y = builder_.add_state_node(prefix + "gathered_spectrum", make_gather_spectrum(spectrum_),
                                  {y}, {}, spectrum_.whole_shape());
    }
    y = builder_.add_node(
        prefix + "synthesis",
        make_orthonormal_synthesis(transform_, batch_, tokens_, rows_ * columns_, hidden),
        {y, normal}, {}, shape());
    x = add(prefix + "sum1", x, y);
    y = norm(prefix + "norm2", layer.norm2, x);
    y = maps_.apply(prefix + "mlp.up", layer.up, {batch_, tokens_}, y);
    y = maps_.gelu(prefix + "mlp.gelu", batch_ * tokens_, layer.up.outputs, y);
    y = maps_.apply(prefix + "mlp.down", layer.down, {batch_, tokens_}, y);
    return add(prefix + "sum2", x, y);
  }

  ModelBuilder& builder_;
  ChannelMaps maps_;
  RunConfig::Model keys_;
  FieldShape shape_;
  std::int64_t batch_;
  std::int64_t rows_ = 0;  // of tokens, of all members
  std::int64_t columns_ = 0;
  std::int64_t tokens_ = 0;  // of this member's slots
  SpectrumCut spectrum_;
  std::shared_ptr<const SpectralTransform> transform_;
  SpectralBlocks blocks_;
  ChannelMap patch_;
  int position_ = -1;
  std::vector<Layer> layers_;
  ChannelMap head_;
};

FieldRows adaptive_rows(const RunConfig::Model& keys, const FieldShape& whole,
                        const FieldCut& cut) {
  check_patches(keys, whole);
  const std::int64_t rows = whole.points[0] / keys.patch;
  check_members(cut, fmt::format("leaves a rank without one of the {} rows of patches", rows),
                [&](std::int64_t members) { return members <= rows; });
  FieldRows points{whole.points[0], {}};
  for (const std::int64_t row : run_of_rows(rows, rows, cut).slots) {
    for (std::int64_t p = 0; p < keys.patch; ++p)
      points.slots.push_back(row == FieldRows::none ? row : row * keys.patch + p);
  }
  return points;
}

std::unique_ptr<FieldNetwork> make_adaptive_network(const FieldNetworkArguments& arguments) {
  return std::make_unique<AdaptiveNetwork>(arguments);
}

}  // namespace

ModelKind afno_kind() {
  return field_kind("afno",
                    {"hidden", "layers", "patch", "spectral_blocks", "sparsity_threshold",
                     "hard_thresholding", "mlp_ratio", "norm"},
                    make_adaptive_network, adaptive_rows);
}

}  // namespace garonne::nn
