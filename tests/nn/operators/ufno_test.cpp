// U-shaped Fourier operators against a network written from the formulas, with sums over all points
// for every mode and PyTorch's autograd.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "nn/fields/field_model.hpp"
#include "nn/node_runner.hpp"
#include "nn/spectral/fourier_sums.hpp"

namespace garonne::nn {
namespace {

using garonne::test::all_of;
using garonne::test::count_of;
using garonne::test::field_of;
using garonne::test::from_to;
using garonne::test::ModelRun;
using garonne::test::Named;
using garonne::test::on_other_grid;
using garonne::test::Points;
using garonne::test::random_parameters;
using garonne::test::relative_error;
using garonne::test::run_model;
using garonne::test::spectrum_of;
using garonne::test::waves;

constexpr std::int64_t batch = 2;

struct UfnoCase {
  std::string name;
  RunConfig::Model keys;
  FieldShape shape;
};

UfnoCase case_of(std::string name, std::int64_t levels, Points points, Points modes,
                 std::int64_t padding = 0, const std::string& weights = "centred") {
  UfnoCase item{std::move(name), {}, {}};
  item.keys.kind = "ufno";
  item.keys.hidden = 3;
  item.keys.levels = levels;
  item.keys.modes = std::move(modes);
  item.keys.padding = padding;
  item.keys.spectral_weights = weights;
  item.shape.input_channels = 2;
  item.shape.target_channels = 1;
  item.shape.points = std::move(points);
  return item;
}

std::vector<UfnoCase> ufno_cases() {
  std::vector<UfnoCase> all = {
      case_of("two levels, odd at the bottom", 2, {12, 20}, {5, 6}),
      case_of("one axis, three levels", 3, {24}, {9}),
      case_of("three axes", 1, {6, 4, 8}, {3, 4, 5}),
      case_of("padded, all modes", 2, {9, 13}, {12, 16}, 3),
      case_of("corners", 2, {8, 16}, {4, 9}, 0, "corners"),
  };
  all.back().keys.coordinates = false;
  all.back().shape.target_channels = 2;
  return all;
}

Model model_of(const UfnoCase& item, Precision precision) {
  Declaration declaration;
  declaration.precision = precision;
  declaration.threads = 2;
  return make_field_model(item.keys, "squared-l2", item.shape, batch, declaration);
}

Named loaded_of(const UfnoCase& item) {
  at::manual_seed(5);
  const auto values = [&](std::int64_t channels) {
    return at::randn({batch, channels, item.shape.count()}, at::kDouble)
        .to(at::kBFloat16)
        .to(at::kDouble);
  };
  return {{"input", values(item.shape.input_channels)},
          {"target", values(item.shape.target_channels)}};
}

class Reference {
 public:
  Reference(const UfnoCase& item, const Named& parameters, const Named& loaded)
      : keys_(item.keys), shape_(item.shape), loaded_(loaded) {
    for (const auto& [name, value] : parameters) p_[name] = value.clone().requires_grad_(true);
  }

  double loss() {
    Points padded = shape_.points;
    for (std::int64_t& count : padded) count += keys_.padding;
    at::Tensor x = loaded_.at("input").transpose(1, 2);
    if (keys_.coordinates) x = at::cat({x, coordinates()}, 2);
    x = linear("lift.down", at::gelu(linear("lift.up", x)));
    x = embedded(x, shape_.points, padded);
    x = descend(x, padded, 0);
    x = cropped(x, padded, shape_.points);
    x = linear("project.down", at::gelu(linear("project.up", x)));
    const at::Tensor off = x - loaded_.at("target").transpose(1, 2);
    loss_ = (off * off).mean();
    return loss_.item<double>();
  }

  Named gradients() {
    loss_.backward();
    Named gradients;
    for (const auto& [name, value] : p_) gradients[name] = value.grad();
    return gradients;
  }

 private:
  // What is below a level, and back.
  at::Tensor descend(const at::Tensor& given, const Points& points, std::int64_t level) {
    if (level == keys_.levels) return block("bottom.", given, points);
    Points coarser = points;
    for (std::int64_t& count : coarser) count /= 2;
    const at::Tensor skip = block("down." + std::to_string(level) + ".", given, points);
    const at::Tensor below = descend(on_other_grid(skip, points, coarser), coarser, level + 1);
    const at::Tensor both = at::cat({on_other_grid(below, coarser, points), skip}, 2);
    return block("up." + std::to_string(level) + ".", both, points);
  }

  at::Tensor block(const std::string& name, const at::Tensor& x, const Points& points) {
    std::vector<Points> axes;
    for (std::size_t a = 0; a < points.size(); ++a) axes.push_back(kept(a, points[a]));
    const std::vector<Points> modes = all_of(axes);
    const at::Tensor of_points = waves(modes, points);
    const at::Tensor& numbers = p_.at(name + "spectral.weight");
    const at::Tensor weight = at::view_as_complex(
        numbers.reshape({static_cast<std::int64_t>(modes.size()), x.size(2), keys_.hidden, 2}));
    at::Tensor y = at::einsum("bki,kio->bko", {spectrum_of(x, of_points), weight});
    // A real field has the opposite of a mode, too.
    at::Tensor twice = at::ones({static_cast<std::int64_t>(modes.size())}, at::kDouble);
    for (std::size_t k = 0; k < modes.size(); ++k) {
      if (2 * modes[k].back() % points.back() != 0) twice[static_cast<std::int64_t>(k)] = 2;
    }
    y = y * twice.view({1, -1, 1});
    const at::Tensor around = at::matmul(x, p_.at(name + "skip.weight").t()) + p_.at(name + "bias");
    return at::gelu(around + field_of(y, of_points));
  }

  Points kept(std::size_t axis, std::int64_t points) const {
    const bool last = axis + 1 == shape_.points.size();
    const std::int64_t asked = keys_.modes[axis];
    if (keys_.spectral_weights == "corners") {
      if (last) return from_to(0, std::min(asked, points / 2 + 1) - 1);
      const std::int64_t half = std::min(asked, points / 2);
      return from_to(-half, half - 1);
    }
    const std::int64_t modes = std::min(asked, points);
    if (last) return from_to(0, modes / 2);
    return from_to(-(modes / 2), modes - modes / 2 - 1);
  }

  at::Tensor linear(const std::string& name, const at::Tensor& x) {
    return at::matmul(x, p_.at(name + ".weight").t()) + p_.at(name + ".bias");
  }

  at::Tensor coordinates() const {
    std::vector<Points> axes;
    for (const std::int64_t count : shape_.points) axes.push_back(from_to(0, count - 1));
    const std::vector<Points> places = all_of(axes);
    at::Tensor all =
        at::zeros({1, shape_.count(), static_cast<std::int64_t>(axes.size())}, at::kDouble);
    for (std::size_t n = 0; n < places.size(); ++n) {
      for (std::size_t a = 0; a < axes.size(); ++a) {
        all[0][static_cast<std::int64_t>(n)][static_cast<std::int64_t>(a)] =
            static_cast<double>(places[n][a]) / static_cast<double>(shape_.points[a]);
      }
    }
    return all.expand({batch, -1, -1});
  }

  static Points with(const Points& points, std::int64_t channels) {
    Points sizes = {batch};
    sizes.insert(sizes.end(), points.begin(), points.end());
    sizes.push_back(channels);
    return sizes;
  }
  static at::Tensor embedded(const at::Tensor& x, const Points& points, const Points& larger) {
    Points pads = {0, 0};
    for (std::size_t a = points.size(); a-- > 0;) {
      pads.push_back(0);
      pads.push_back(larger[a] - points[a]);
    }
    return at::constant_pad_nd(x.reshape(with(points, x.size(2))), pads)
        .reshape({batch, count_of(larger), -1});
  }
  static at::Tensor cropped(const at::Tensor& x, const Points& points, const Points& smaller) {
    at::Tensor view = x.reshape(with(points, x.size(2)));
    for (std::size_t a = 0; a < smaller.size(); ++a)
      view = view.narrow(static_cast<std::int64_t>(a) + 1, 0, smaller[a]);
    return view.reshape({batch, count_of(smaller), -1});
  }

  RunConfig::Model keys_;
  FieldShape shape_;
  Named loaded_;
  Named p_;
  at::Tensor loss_;
};

void check_reference(Precision precision, double tolerance) {
  for (const UfnoCase& item : ufno_cases()) {
    SCOPED_TRACE(item.name);
    const Model model = model_of(item, precision);
    const Named parameters = random_parameters(model);
    const Named loaded = loaded_of(item);
    const ModelRun run = run_model(model, precision, parameters, loaded, 1, true);
    Reference reference(item, parameters, loaded);
    const double wanted = reference.loss();
    EXPECT_NEAR(run.loss, wanted, tolerance * wanted);
    const Named gradients = reference.gradients();
    ASSERT_EQ(gradients.size(), run.gradients.size());
    for (const auto& [name, gradient] : gradients) {
      EXPECT_GT(gradient.norm().item<double>(), 0) << name;
      EXPECT_LT(relative_error(run.gradients.at(name), gradient), tolerance) << name;
    }
  }
}

TEST(UShapedOperators, EqualTheReferenceInFloat64) {
  check_reference(Precision::Float64, 1e-11);
}
TEST(UShapedOperators, EqualTheReferenceInFloat32) {
  check_reference(Precision::Float32, 2e-4);
}

TEST(UShapedOperators, AreOffByRoundingInBFloat16) {
  for (const UfnoCase& item : ufno_cases()) {
    SCOPED_TRACE(item.name);
    const Named parameters = random_parameters(model_of(item, Precision::Float64));
    garonne::test::expect_off_by_rounding([&](Precision of) { return model_of(item, of); },
                                          Precision::BFloat16, parameters, loaded_of(item));
  }
}

// Central differences along a direction in each parameter.
TEST(UShapedOperators, GradientsAreSlopes) {
  for (const UfnoCase& item : ufno_cases()) {
    SCOPED_TRACE(item.name);
    const Model model = model_of(item, Precision::Float64);
    const Named parameters = random_parameters(model);
    const Named loaded = loaded_of(item);
    const Named gradients = run_model(model, Precision::Float64, parameters, loaded).gradients;
    for (const auto& [name, value] : parameters) {
      const at::Tensor direction = at::randn(value.sizes(), at::kDouble);
      const double step = 1e-5;
      double losses[2];
      for (const int side : {0, 1}) {
        Named moved = parameters;
        moved[name] = value + (side == 0 ? -step : step) * direction;
        losses[side] = run_model(model, Precision::Float64, moved, loaded).loss;
      }
      const double slope = (gradients.at(name) * direction).sum().item<double>();
      const double size = gradients.at(name).norm().item<double>();
      EXPECT_NEAR((losses[1] - losses[0]) / (2 * step), slope, 1e-6 * size + 1e-10) << name;
    }
  }
}

// Deeper, the skips of outer levels are of larger fields.
TEST(UShapedOperators, SizesFollowTheLevels) {
  const UfnoCase item = case_of("", 2, {16, 32}, {8, 8});
  const Model model = model_of(item, Precision::Float32);
  const auto shape = [&](const std::string& name) {
    for (const auto& parameter : model.graph.parameters) {
      if (parameter.name == name) return parameter.shape;
    }
    for (const auto& node : model.graph.nodes) {
      if (node.name == name) return model.graph.values[static_cast<std::size_t>(node.output)].shape;
    }
    return Points{};
  };
  EXPECT_EQ(shape("down.0.spectral.weight"), (Points{8, 5, 3, 3, 2}));
  EXPECT_EQ(shape("down.1.spectral.weight"), (Points{8, 5, 3, 3, 2}));
  EXPECT_EQ(shape("bottom.spectral.weight"), (Points{4, 5, 3, 3, 2}));
  EXPECT_EQ(shape("up.0.spectral.weight"), (Points{8, 5, 6, 3, 2}));
  EXPECT_EQ(shape("up.1.skip.weight"), (Points{3, 6}));
  EXPECT_EQ(shape("down.0.coarser"), (Points{batch * 8 * 16, 3}));
  EXPECT_EQ(shape("down.1.coarser"), (Points{batch * 4 * 8, 3}));
  EXPECT_EQ(shape("up.1.joined"), (Points{batch * 8 * 16, 6}));
  EXPECT_EQ(shape("up.0.joined"), (Points{batch * 16 * 32, 6}));
}

TEST(UShapedOperators, RefuseWhatTheyCannotDo) {
  const auto refused = [](const UfnoCase& item, const FieldCut& cut, const std::string& key,
                          const std::vector<std::string>& words) {
    try {
      make_field_model(item.keys, "auto", item.shape, batch, Declaration(), cut);
      ADD_FAILURE() << key << " is not refused";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key(), key);
      for (const std::string& word : words)
        EXPECT_NE(error.reason().find(word), std::string::npos) << error.what();
    }
  };
  refused(case_of("", 2, {14, 18}, {4, 4}), {}, "model.levels",
          {"multiple of 4", "14 x 18 points and padding 0", "use model.padding = 2",
           "or model.levels = 1"});
  refused(case_of("", 3, {17, 17}, {4, 4}), {}, "model.levels", {"model.padding = 7"});
  refused(case_of("", 2, {17, 31}, {4, 4}), {}, "model.levels",
          {"use model.levels = 1 with model.padding = 1"});
  refused(case_of("", 1, {7, 8}, {4, 4}), {}, "model.levels", {"model.kind = fno"});
  refused(case_of("", 6, {17, 17}, {4, 4}), {}, "model.levels",
          {"multiple of 64", "use model.levels = 4 with model.padding = 15"});
  // One point would be left.
  refused(case_of("", 2, {4, 8}, {4, 4}), {}, "model.levels", {"at least 8", "model.levels = 1"});
  refused(case_of("", 1, {8, 8}, {4}), {}, "model.modes", {"2 axes"});
  refused(case_of("", 1, {8, 8}, {9, 4}), {}, "model.modes", {"fewer modes"});
  refused(case_of("", 1, {8, 8}, {4, 4}), {0, 2}, "grid.tensor", {"use grid.data"});
  UfnoCase layers = case_of("", 1, {8, 8}, {4, 4});
  layers.keys.layers = 3;
  refused(layers, {}, "model.layers", {"ufno"});
}

}  // namespace
}  // namespace garonne::nn
