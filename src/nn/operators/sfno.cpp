// Spherical Fourier neural operators (Bonev et al., arXiv 2306.03838), in the layers of makani and
// in those of the smaller example of torch-harmonics.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "nn/fields/field_layers.hpp"
#include "nn/fields/field_window.hpp"
#include "nn/layers/instance_norm.hpp"
#include "nn/layers/instance_norm_parts.hpp"
#include "nn/layers/layers.hpp"
#include "nn/operators/channel_maps.hpp"
#include "nn/operators/field_network.hpp"
#include "nn/spectral/spectrum_collectives.hpp"
#include "nn/spectral/sphere_contraction.hpp"
#include "nn/spectral/sphere_layers.hpp"

namespace garonne::nn {
namespace {

constexpr double sfno_norm_epsilon = 1e-6;

using Basis = std::shared_ptr<const SphereBasis>;

void check_on_sphere(const RunConfig::Model& keys, const FieldShape& shape) {
  if (shape.points.size() == 2 && is_sphere_grid(shape.grid)) return;
  throw ConfigError(
      "model.kind", keys.kind,
      fmt::format("wants fields on an equiangular, equiangular-midpoints or legendre-gauss grid of "
                  "the whole sphere; these are on a grid that is {}{}",
                  shape.grid,
                  shape.grid == "regional" ? " (`garonne data inspect` says why)" : ""));
}

bool is_makani(const RunConfig::Model& keys) {
  return keys.block != "torch-harmonics";
}

// Of the grid between the first block and the last.
struct InnerSizes {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t degrees;
};

InnerSizes inner_sizes(const RunConfig::Model& keys, std::int64_t rows, std::int64_t columns) {
  const std::int64_t factor = keys.scale_factor;
  const bool makani = is_makani(keys);
  InnerSizes inner{makani ? rows / factor : (rows - 1) / factor + 1, columns / factor, 0};
  // The library's example leaves the highest frequency out.
  const std::int64_t frequencies = makani ? inner.columns / 2 + 1 : inner.columns / 2;
  inner.degrees = std::min(inner.rows, frequencies);
  if (inner.degrees < 1 || inner.rows < 2) {
    throw ConfigError("model.scale_factor", fmt::format("{}", factor),
                      fmt::format("leaves nothing of {} × {} points", rows, columns));
  }
  return inner;
}

struct Norm {
  int gain = -1;
  int bias = -1;
};

struct Block {
  int spectral = -1;
  Norm norm0;
  ChannelMap up;
  ChannelMap down;
  Norm norm1;       // makani
  ChannelMap skip;  // makani
};

class SphericalNetwork : public FieldNetwork {
 public:
  explicit SphericalNetwork(const FieldNetworkArguments& arguments)
      : builder_(arguments.builder),
        maps_(arguments.builder),
        keys_(arguments.keys),
        shape_(arguments.shape),
        batch_(arguments.batch),
        makani_(is_makani(arguments.keys)),
        normalises_(arguments.keys.norm != "none"),
        by_degree_(arguments.keys.spectral_operator == "dhconv") {
    check();
    make_bases();
    add_parameters();
  }

  int apply(const std::string& prefix, const FieldWindow& window) override {
    const std::int64_t rows = rows_of(outer_);
    int x = builder_.add_node(prefix + "encoder.0",
                              make_field_lift(shape_, batch_, window, Coordinates::None,
                                              encoder_.outputs, encoder_.bias >= 0),
                              window.values, encoder_.parameters(), {rows, encoder_.outputs});
    if (makani_) {
      x = maps_.gelu(prefix + "encoder.gelu", rows, keys_.hidden, x);
      x = maps_.apply(prefix + "encoder.1", encoder_out_, {rows, 1}, x);
    }
    for (std::size_t number = 0; number < blocks_.size(); ++number) {
      builder_.next_block();
      x = block(prefix + fmt::format("block.{}.", number), number, x);
    }
    builder_.next_block();
    x = maps_.apply(prefix + "decoder.0", decoder_, {rows, 1}, x);
    if (makani_) {
      x = maps_.gelu(prefix + "decoder.gelu", rows, keys_.hidden, x);
      x = maps_.apply(prefix + "decoder.1", decoder_out_, {rows, 1}, x);
    }
    return keys_.big_skip ? skip_over_all(prefix, window, x) : x;
  }

 private:
  void check() const {
    check_on_sphere(keys_, shape_);
    if (keys_.block != "auto" && keys_.block != "makani" && keys_.block != "torch-harmonics") {
      throw ConfigError("model.block", keys_.block,
                        "is no layer of model.kind = sfno; there are makani and torch-harmonics");
    }
    if (keys_.norm == "layer")
      throw ConfigError("model.norm", keys_.norm, "is not for model.kind = sfno; use instance");
  }

  void make_bases() {
    const std::int64_t all_rows = cuts() ? shape_.rows.whole : shape_.points[0];
    const auto [rows, columns, degrees] = inner_sizes(keys_, all_rows, shape_.points[1]);
    outer_ = std::make_shared<SphereBasis>(sphere_grid_kind("data.layout", shape_.grid), all_rows,
                                           shape_.points[1], degrees, degrees, shape_.rows);
    inner_ = std::make_shared<SphereBasis>(SphereGridKind::LegendreGauss, rows, columns, degrees,
                                           degrees,
                                           cuts() ? mirrored_rows(rows, shape_.cut) : FieldRows());
    groups_ = sphere_groups(inner_->shape(), weights(), shape_.cut);
    if (inner_->text() == outer_->text()) inner_ = outer_;
  }

  bool cuts() const { return shape_.cut.cuts(); }
  SphereWeights weights() const {
    return by_degree_ ? SphereWeights::ByDegree : SphereWeights::ByDegreeAndOrder;
  }

  const Basis& basis_before(std::size_t number) const { return number == 0 ? outer_ : inner_; }
  const Basis& basis_after(std::size_t number) const {
    return number + 1 == static_cast<std::size_t>(keys_.layers) ? outer_ : inner_;
  }
  std::int64_t rows_of(const Basis& basis) const { return batch_ * basis->shape().points(); }

  ChannelMap add_map(const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias,
                     double gain) {
    return maps_.add(name, outputs, inputs, std::sqrt(gain / static_cast<double>(inputs)), bias);
  }

  Norm add_norm(const std::string& name) {
    if (!normalises_) return {};
    return {builder_.add_parameter(name + ".weight", {keys_.hidden}, {0, 1}),
            builder_.add_parameter(name + ".bias", {keys_.hidden}, {0, 0})};
  }

  // Gains keep the variance near 1: 2 before a GELU, halved where a skip is added.
  void add_parameters() {
    const std::int64_t hidden = keys_.hidden;
    const std::int64_t inputs = shape_.input_channels;
    const std::int64_t outputs = shape_.target_channels;
    encoder_ = add_map("encoder.0", hidden, inputs, makani_, makani_ ? 2 : 1);
    if (makani_) encoder_out_ = add_map("encoder.1", hidden, hidden, false, 1);
    for (std::int64_t number = 0; number < keys_.layers; ++number)
      blocks_.push_back(add_block(fmt::format("block.{}.", number)));
    const double last_gain = makani_ && keys_.big_skip ? 0.5 : 1;
    decoder_ =
        add_map("decoder.0", makani_ ? hidden : outputs, hidden, makani_, makani_ ? 2 : last_gain);
    if (makani_) decoder_out_ = add_map("decoder.1", outputs, hidden, false, last_gain);
    if (keys_.big_skip && (makani_ || inputs != outputs))
      big_skip_ = add_map("big_skip", outputs, inputs, false, makani_ ? 0.5 : 1);
  }

  Block add_block(const std::string& prefix) {
    const std::int64_t hidden = keys_.hidden;
    const double ratio = keys_.mlp_ratio == 0 ? 2 : keys_.mlp_ratio;
    const auto width = static_cast<std::int64_t>(static_cast<double>(hidden) * ratio);
    if (width < 1) {
      throw ConfigError("model.mlp_ratio", fmt::format("{}", ratio),
                        fmt::format("leaves no channel of model.hidden = {}", hidden));
    }
    const Box box =
        even_box({sphere_weights(inner_->shape(), weights()), hidden, hidden, 2}, shape_.cut);
    Block block;
    // Half of the variance for each part of a complex number. Of degree 0 only the real part
    // counts, since its coefficient is real: makani gives it the whole.
    const Initialisation initialisation{std::sqrt(1 / static_cast<double>(hidden)), 0,
                                        2 * hidden * hidden, makani_ ? std::numbers::sqrt2 : 1.0};
    block.spectral = builder_.add_parameter(
        prefix + "spectral.weight", {groups_.weights, hidden, hidden, 2}, initialisation, box);
    builder_.set_complex(block.spectral);
    block.norm0 = add_norm(prefix + "norm0");
    block.up = add_map(prefix + "mlp.up", width, hidden, true, 2);
    block.down = add_map(prefix + "mlp.down", hidden, width, makani_, makani_ ? 0.5 : 1);
    if (makani_) {
      block.norm1 = add_norm(prefix + "norm1");
      block.skip = add_map(prefix + "skip", hidden, hidden, true, 0.5);
    }
    return block;
  }

  int norm(const std::string& name, const Norm& parameters, const Basis& basis, int x) {
    if (!normalises_) return x;
    if (cuts()) return cut_norm(name, parameters, basis, x);
    return builder_.add_node(
        name, make_instance_norm(batch_, basis->shape().points(), keys_.hidden, sfno_norm_epsilon),
        {x}, {parameters.gain, parameters.bias}, {rows_of(basis), keys_.hidden});
  }
  // Of a cut field: statistics are those of all members' rows.
  int cut_norm(const std::string& name, const Norm& parameters, const Basis& basis, int x) {
    const std::int64_t hidden = keys_.hidden;
    const std::int64_t members = shape_.cut.members;
    const std::int64_t in_row = basis->shape().longitudes;
    std::vector<std::int64_t> counted;
    for (int member = 0; member < shape_.cut.members; ++member) {
      const FieldRows rows = mirrored_rows(basis->rows().whole, {member, shape_.cut.members});
      counted.push_back(rows.present() * in_row);
    }
    SpectrumCut cut;
    cut.columns = 2 * batch_ * hidden;
    cut.begins = even_runs(members, members);
    cut.is_double = true;
    const int mine = builder_.add_double_node(
        name + "_moments", make_instance_moments(basis->rows(), in_row, batch_, hidden), {x},
        {2, batch_, hidden});
    const int all = builder_.add_double_node(name + "_gathered_moments", make_gather_spectrum(cut),
                                             {mine}, cut.whole_shape());
    return builder_.add_node(
        name,
        make_instance_norm_of_moments(std::move(counted), basis->shape().points(), batch_, hidden,
                                      sfno_norm_epsilon),
        {x, all}, {parameters.gain, parameters.bias}, {rows_of(basis), hidden});
  }
  int add(const std::string& name, std::int64_t rows, std::int64_t channels, int x, int y) {
    return builder_.add_node(name, make_dropout_add(name, {rows, 1}, channels, 0), {x, y}, {},
                             {rows, channels});
  }
  int synthesis(const std::string& name, const Basis& basis, int coefficients) {
    return builder_.add_node(name, make_sphere_synthesis(basis, batch_, keys_.hidden),
                             {coefficients}, {}, {rows_of(basis), keys_.hidden});
  }

  int block(const std::string& prefix, std::size_t number, int x) {
    const Block& block = blocks_[number];
    const Basis& before = basis_before(number);
    const Basis& after = basis_after(number);
    const std::int64_t hidden = keys_.hidden;
    const std::int64_t rows = rows_of(after);
    SpectrumCut cut;
    cut.columns = 2 * batch_ * hidden;
    cut.begins = sphere_runs(before->shape(), weights(), shape_.cut.members);
    int spectrum =
        builder_.add_state_node(prefix + "analysis", make_sphere_analysis(before, batch_, hidden),
                                {x}, {}, {cut.entries(), batch_, hidden, 2});
    if (cuts()) {
      spectrum = builder_.add_state_node(prefix + "spectrum", make_sum_spectrum(cut), {spectrum},
                                         {}, cut.piece_shape());
    }
    // The coefficients of all members, whose fields they are.
    const auto gathered = [&](const std::string& name, int mine) {
      return cuts() ? builder_.add_state_node(prefix + name, make_gather_spectrum(cut), {mine}, {},
                                              cut.whole_shape())
                    : mine;
    };
    // Where the grid changes the skip starts from the same coefficients on the new grid.
    const int residual = before == after ? x
                                         : synthesis(prefix + "resampled", after,
                                                     gathered("gathered_input", spectrum));
    int y = builder_.add_state_node(prefix + "contraction",
                                    make_sphere_contraction(groups_, batch_, hidden, hidden),
                                    {spectrum}, {block.spectral}, {cut.slots(), batch_, hidden, 2});
    y = synthesis(prefix + "synthesis", after, gathered("gathered_spectrum", y));
    y = norm(prefix + "norm0", block.norm0, after, y);
    if (makani_) y = maps_.gelu(prefix + "gelu", rows, hidden, y);
    y = maps_.apply(prefix + "mlp.up", block.up, {rows, 1}, y);
    y = maps_.gelu(prefix + "mlp.gelu", rows, block.up.outputs, y);
    y = maps_.apply(prefix + "mlp.down", block.down, {rows, 1}, y);
    if (!makani_) return add(prefix + "sum", rows, hidden, residual, y);
    y = norm(prefix + "norm1", block.norm1, after, y);
    const int skip = maps_.apply(prefix + "skip", block.skip, {rows, 1}, residual);
    return add(prefix + "sum", rows, hidden, skip, y);
  }

  int skip_over_all(const std::string& prefix, const FieldWindow& window, int x) {
    const std::int64_t rows = rows_of(outer_);
    const std::int64_t outputs = shape_.target_channels;
    const bool projects = big_skip_.weight >= 0;
    auto node = projects ? make_field_lift(shape_, batch_, window, Coordinates::None, outputs,
                                           /*bias=*/false)
                         : make_window_patches(shape_, batch_, window, /*patch=*/1);
    const int input =
        builder_.add_node(prefix + "big_skip", std::move(node), window.values,
                          projects ? big_skip_.parameters() : std::vector<int>(), {rows, outputs});
    return add(prefix + "prediction", rows, outputs, input, x);
  }

  ModelBuilder& builder_;
  ChannelMaps maps_;
  RunConfig::Model keys_;
  FieldShape shape_;
  std::int64_t batch_;
  bool makani_;
  bool normalises_;
  bool by_degree_;
  Basis outer_;
  Basis inner_;
  SphereGroups groups_;  // that this member contracts
  ChannelMap encoder_;
  ChannelMap encoder_out_;
  std::vector<Block> blocks_;
  ChannelMap decoder_;
  ChannelMap decoder_out_;
  ChannelMap big_skip_;
};

FieldRows spherical_rows(const RunConfig::Model& keys, const FieldShape& whole,
                         const FieldCut& cut) {
  check_on_sphere(keys, whole);
  const InnerSizes inner = inner_sizes(keys, whole.points[0], whole.points[1]);
  check_members(cut,
                fmt::format("leaves a rank without pairs of rows or degrees: there are {} rows "
                            "outside, {} inside, {} degrees",
                            whole.points[0], inner.rows, inner.degrees),
                [&](std::int64_t members) {
                  return members <= whole.points[0] / 2 && members <= inner.rows / 2 &&
                         members <= inner.degrees;
                });
  return mirrored_rows(whole.points[0], cut);
}

std::unique_ptr<FieldNetwork> make_spherical_network(const FieldNetworkArguments& arguments) {
  return std::make_unique<SphericalNetwork>(arguments);
}

}  // namespace

ModelKind sfno_kind() {
  return field_kind("sfno",
                    {"hidden", "layers", "block", "scale_factor", "spectral_operator", "mlp_ratio",
                     "norm", "big_skip"},
                    make_spherical_network, spherical_rows);
}

}  // namespace garonne::nn
