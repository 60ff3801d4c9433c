// Fourier neural operators (Li et al., arXiv 2010.08895) and their tensorised form (Kossaifi et
// al., arXiv 2310.00120), in the layers of the paper's programs and of the neuraloperator library.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/error.hpp"
#include "nn/fields/field_layers.hpp"
#include "nn/operators/channel_maps.hpp"
#include "nn/operators/field_network.hpp"
#include "nn/operators/fourier_modes.hpp"
#include "nn/spectral/spectral_layer.hpp"
#include "nn/spectral/spectral_parts.hpp"
#include "nn/spectral/spectrum_collectives.hpp"

namespace garonne::nn {
namespace {

constexpr std::int64_t li_projection_width = 128;

class FourierNetwork : public FieldNetwork {
 public:
  explicit FourierNetwork(const FieldNetworkArguments& arguments)
      : builder_(arguments.builder),
        maps_(arguments.builder),
        keys_(arguments.keys),
        shape_(arguments.shape),
        batch_(arguments.batch),
        li_(arguments.keys.block == "li"),
        padded_(arguments.shape.points) {
    if (!li_ && keys_.block != "auto" && keys_.block != "neuralop") {
      throw ConfigError(
          "model.block", keys_.block,
          fmt::format("is no layer of model.kind = {}; there are neuralop and li", keys_.kind));
    }
    const std::size_t axes = shape_.points.size();
    if (keys_.modes.size() != axes) {
      throw ConfigError("model.modes", fmt::format("{}", fmt::join(keys_.modes, ",")),
                        fmt::format("wants one number for each of the {} axes of the data", axes));
    }
    for (std::size_t axis = 0; axis < axes; ++axis) {
      // The slots of a cut axis have room for the padding.
      const bool cut = axis == 0 && shape_.rows.cut();
      const std::int64_t whole = (cut ? shape_.rows.whole : padded_[axis]) + keys_.padding;
      padded_[axis] = cut ? padded_[axis] : whole;
      frequencies_.push_back(frequencies_of(keys_, keys_.modes[axis], whole, axis + 1 == axes));
    }
    if (cuts()) {
      const std::int64_t whole = shape_.rows.whole + keys_.padding;
      transform_ = std::make_shared<SpectralTransform>(padded_, frequencies_,
                                                       run_of_rows(whole, whole, shape_.cut));
    }
    rows_ = batch_ * shape_.count();
    padded_rows_ = batch_;
    for (const std::int64_t count : padded_) padded_rows_ *= count;
    if (li_ && keys_.mlp_ratio != 0) {
      throw ConfigError("model.mlp_ratio", fmt::format("{}", keys_.mlp_ratio),
                        "has no meaning for model.block = li, whose layers have no MLP");
    }
    add_parameters();
  }

  int apply(const std::string& prefix, const FieldWindow& window) override {
    int x = lift(prefix, window);
    for (std::int64_t number = 0; number < keys_.layers; ++number) {
      builder_.next_block();
      x = layer(prefix + fmt::format("layer.{}.", number), number, x);
    }
    builder_.next_block();
    return project(prefix, x);
  }

 private:
  struct Layer {
    std::vector<int> spectral;  // skip, bias, those of the contraction
    ChannelMap up;
    ChannelMap down;
    int gate = -1;
  };

  bool cuts() const { return shape_.cut.cuts(); }

  // Of the modes that this member contracts.
  ContractionSizes contraction_sizes() const {
    ContractionSizes sizes;
    sizes.batch = batch_;
    for (const auto& axis : frequencies_)
      sizes.kept.push_back(static_cast<std::int64_t>(axis.size()));
    sizes.inputs = sizes.outputs = keys_.hidden;
    if (cuts()) {
      sizes.whole_first = sizes.kept[0];
      sizes.kept[0] = even_slots(sizes.kept[0], shape_.cut.members);
    }
    return sizes;
  }

  std::shared_ptr<const SpectralContraction> make_contraction() const {
    const std::int64_t hidden = keys_.hidden;
    const ContractionSizes sizes = contraction_sizes();
    // Of a real number: the paper's programs draw both parts from [0, 1/hidden²), the library both
    // with half the variance of 1/hidden.
    const auto width = static_cast<double>(hidden);
    const double whole = std::sqrt(1.0 / width);
    const double deviation = li_ ? 1 / (std::sqrt(3.0) * width * width) : whole / std::sqrt(2.0);
    if (keys_.kind == "fno") return make_dense_contraction(sizes, deviation);
    const bool factorized = keys_.implementation == "factorized";
    if (keys_.factorization == "cp")
      return make_cp_contraction(sizes, keys_.rank, whole, factorized);
    return make_tucker_contraction(sizes, keys_.rank, whole, factorized);
  }

  void add_parameters() {
    const std::int64_t hidden = keys_.hidden;
    std::int64_t features = shape_.input_channels;
    if (keys_.coordinates) features += static_cast<std::int64_t>(shape_.points.size());
    contraction_ = make_contraction();
    if (li_) {
      lift_ = maps_.add_default("lift", hidden, features);
    } else {
      lift_ = maps_.add_default("lift.up", 2 * hidden, features);
      lift_down_ = maps_.add_default("lift.down", hidden, 2 * hidden);
    }
    for (std::int64_t number = 0; number < keys_.layers; ++number) add_layer(number);
    const std::int64_t inner = li_ ? li_projection_width : 2 * hidden;
    project_up_ = maps_.add_default("project.up", inner, hidden);
    project_down_ = maps_.add_default("project.down", shape_.target_channels, inner);
  }

  void add_layer(std::int64_t number) {
    const std::string prefix = fmt::format("layer.{}.", number);
    const std::int64_t hidden = keys_.hidden;
    const double deviation = 1 / std::sqrt(3.0 * static_cast<double>(hidden));
    Layer layer;
    layer.spectral.push_back(
        builder_.add_parameter(prefix + "skip.weight", {hidden, hidden}, {deviation, 0}));
    const double bias = li_ ? deviation : std::sqrt(1 / static_cast<double>(hidden));
    layer.spectral.push_back(builder_.add_parameter(prefix + "bias", {hidden}, {bias, 0}));
    for (const auto& parameter : contraction_->parameters()) {
      Box box;
      if (cuts() && parameter.by_first_axis) {
        std::vector<std::int64_t> global = parameter.shape;
        global[0] = static_cast<std::int64_t>(frequencies_[0].size());
        box = even_box(std::move(global), shape_.cut);
      }
      layer.spectral.push_back(builder_.add_parameter(prefix + "spectral." + parameter.name,
                                                      parameter.shape, parameter.initialisation,
                                                      std::move(box)));
      builder_.set_complex(layer.spectral.back());
    }
    if (!li_) {
      const double ratio = keys_.mlp_ratio == 0 ? 0.5 : keys_.mlp_ratio;
      const auto inner =
          static_cast<std::int64_t>(std::nearbyint(static_cast<double>(hidden) * ratio));
      if (inner < 1) {
        throw ConfigError("model.mlp_ratio", fmt::format("{}", ratio),
                          fmt::format("leaves no channel of model.hidden = {}", hidden));
      }
      layer.up = maps_.add_default(prefix + "mlp.up", inner, hidden);
      layer.down = maps_.add_default(prefix + "mlp.down", hidden, inner);
      layer.gate = builder_.add_parameter(prefix + "gate", {hidden}, {0, 1});
    }
    layers_.push_back(std::move(layer));
  }

  int lift(const std::string& prefix, const FieldWindow& window) {
    const Coordinates coordinates = !keys_.coordinates ? Coordinates::None
                                    : li_              ? Coordinates::Inclusive
                                                       : Coordinates::Periodic;
    const std::string name = prefix + (li_ ? "lift" : "lift.up");
    int x =
        builder_.add_node(name, make_field_lift(shape_, batch_, window, coordinates, lift_.outputs),
                          window.values, {lift_.weight, lift_.bias}, {rows_, lift_.outputs});
    if (!li_) {
      x = maps_.gelu(prefix + "lift.gelu", rows_, lift_.outputs, x);
      x = maps_.apply(prefix + "lift.down", lift_down_, {rows_, 1}, x);
    }
    if (keys_.padding == 0) return x;
    return builder_.add_node(
        prefix + "pad",
        make_field_pad(batch_, shape_.points, keys_.padding, keys_.hidden, shape_.rows), {x}, {},
        {padded_rows_, keys_.hidden});
  }

  // The spectral layer of a cut field.
  int cut_spectral(const std::string& prefix, const Layer& parameters, int x) {
    const std::int64_t hidden = keys_.hidden;
    const ContractionSizes sizes = contraction_sizes();
    const std::int64_t points = padded_rows_ / batch_;
    SpectrumCut cut;
    cut.outer = 2 * batch_;
    cut.columns = hidden;
    cut.begins = even_runs(sizes.whole_first, shape_.cut.members, sizes.modes() / sizes.kept[0]);
    int y = builder_.add_state_node(prefix + "analysis",
                                    make_spectral_analysis(transform_, batch_, points, hidden), {x},
                                    {}, {batch_, 2, cut.entries(), hidden});
    y = builder_.add_state_node(prefix + "spectrum", make_sum_spectrum(cut), {y}, {},
                                cut.piece_shape());
    y = builder_.add_state_node(prefix + "contraction",
                                make_spectral_contraction(sizes, contraction_), {y},
                                {parameters.spectral.begin() + 2, parameters.spectral.end()},
                                {batch_, 2, cut.slots(), hidden});
    y = builder_.add_state_node(prefix + "gathered_spectrum", make_gather_spectrum(cut), {y}, {},
                                cut.whole_shape());
    return builder_.add_node(
        prefix + "synthesis", make_spectral_synthesis(transform_, batch_, points, hidden, hidden),
        {x, y}, {parameters.spectral[0], parameters.spectral[1]}, {padded_rows_, hidden});
  }

  int layer(const std::string& prefix, std::int64_t number, int x) {
    const Layer& parameters = layers_[static_cast<std::size_t>(number)];
    const std::int64_t hidden = keys_.hidden;
    const bool last = number + 1 == keys_.layers;
    int y = cuts() ? cut_spectral(prefix, parameters, x)
                   : builder_.add_node(prefix + "spectral",
                                       make_spectral_layer(batch_, padded_, frequencies_, hidden,
                                                           hidden, contraction_),
                                       {x}, parameters.spectral, {padded_rows_, hidden});
    if (!last) y = maps_.gelu(prefix + "gelu", padded_rows_, hidden, y);
    if (li_) return y;
    y = maps_.apply(prefix + "mlp.up", parameters.up, {padded_rows_, 1}, y);
    y = maps_.gelu(prefix + "mlp.gelu", padded_rows_, parameters.up.outputs, y);
    y = maps_.apply(prefix + "mlp.down", parameters.down, {padded_rows_, 1}, y);
    y = builder_.add_node(prefix + "gated", make_gated_add(padded_rows_, hidden), {y, x},
                          {parameters.gate}, {padded_rows_, hidden});
    return last ? y : maps_.gelu(prefix + "gelu_after", padded_rows_, hidden, y);
  }

  int project(const std::string& prefix, int x) {
    if (keys_.padding != 0) {
      x = builder_.add_node(
          prefix + "crop",
          make_field_crop(batch_, shape_.points, keys_.padding, keys_.hidden, shape_.rows), {x}, {},
          {rows_, keys_.hidden});
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
  bool li_;
  std::vector<std::int64_t> padded_;  // points with padding
  Frequencies frequencies_;
  std::int64_t rows_ = 0;
  std::int64_t padded_rows_ = 0;
  std::shared_ptr<const SpectralTransform> transform_;  // of a cut field
  std::shared_ptr<const SpectralContraction> contraction_;
  ChannelMap lift_;
  ChannelMap lift_down_;
  std::vector<Layer> layers_;
  ChannelMap project_up_;
  ChannelMap project_down_;
};

FieldRows fourier_rows(const RunConfig::Model& keys, const FieldShape& whole, const FieldCut& cut) {
  if (whole.points.size() == 1) {
    throw ConfigError("grid.tensor", fmt::format("{}", cut.members),
                      fmt::format("wants fields of two or three axes for model.kind = {}; these "
                                  "have one: use grid.data or grid.pipeline",
                                  keys.kind));
  }
  const std::int64_t rows = whole.points[0];
  const std::int64_t padded = rows + keys.padding;
  const auto modes = static_cast<std::int64_t>(
      frequencies_of(keys, keys.modes.empty() ? 0 : keys.modes[0], padded, false).size());
  check_members(
      cut,
      fmt::format("leaves a rank without rows or modes of the first axis, which has {} and {}",
                  rows, modes),
      [&](std::int64_t members) {
        return members <= modes && members <= padded &&
               even_begin(padded, members, members - 1) < rows;
      });
  return run_of_rows(rows, padded, cut);
}

std::unique_ptr<FieldNetwork> make_fourier_network(const FieldNetworkArguments& arguments) {
  return std::make_unique<FourierNetwork>(arguments);
}

std::vector<std::string> fourier_keys() {
  return {"hidden",           "layers",  "block",       "modes",
          "spectral_weights", "padding", "coordinates", "mlp_ratio"};
}

}  // namespace

ModelKind fno_kind() {
  return field_kind("fno", fourier_keys(), make_fourier_network, fourier_rows);
}

ModelKind tfno_kind() {
  std::vector<std::string> keys = fourier_keys();
  keys.insert(keys.end(), {"factorization", "rank", "implementation"});
  return field_kind("tfno", std::move(keys), make_fourier_network, fourier_rows);
}

}  // namespace garonne::nn
