// Models of fields cut over the tensor axis, beside the same models on one rank: weights, losses,
// gradients, bytes. Rows and modes are odd, so that ranks have slots without a row.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "base/sphere_grid.hpp"
#include "exec/tensor_ranks.hpp"
#include "nn/fields/field_model.hpp"

namespace garonne::exec {
namespace {

constexpr std::int64_t batch = 2;

// Rows without a place in the field hold a number that would be seen in every sum.
std::vector<float> field(const nn::Model& model, const nn::FieldShape& shape, std::int64_t number,
                         std::int64_t leading) {
  const std::int64_t rows = shape.points[0];
  const std::int64_t in_row = shape.count() / rows;
  const std::int64_t slots =
      model.rows.cut() ? static_cast<std::int64_t>(model.rows.slots.size()) : rows;
  std::vector<float> values;
  for (std::int64_t line = 0; line < leading; ++line) {
    for (std::int64_t slot = 0; slot < slots; ++slot) {
      const std::int64_t row = model.rows.row(slot);
      for (std::int64_t p = 0; p < in_row; ++p) {
        const auto place = static_cast<double>((line * rows + row) * in_row + p);
        values.push_back(
            row == nn::FieldRows::none
                ? 5.0F
                : static_cast<float>(std::sin(0.37 * place + 1.7 * static_cast<double>(number))));
      }
    }
  }
  return values;
}

HostBatch batch_of(const nn::Model& model, const nn::FieldShape& shape, std::int64_t number) {
  HostBatch made;
  for (std::int64_t b = 0; b < batch; ++b) made.samples.push_back(number + b);
  made.fields["input"] = field(model, shape, number, batch * shape.input_channels);
  made.fields["target"] =
      field(model, shape, number + 1000, shape.rollout * batch * shape.target_channels);
  if (shape.masked) {
    auto& mask = made.fields["mask"];
    mask = field(model, shape, number + 2000,
                 (shape.push_forward + shape.rollout) * batch * shape.target_channels);
    for (float& value : mask) value = value > -0.3F ? 1.0F : 0.0F;
  }
  return made;
}

struct Setting {
  std::string name;
  RunConfig::Model keys;
  std::string loss = "relative-l2";
  nn::FieldShape shape;
  Precision precision = Precision::Float64;
  std::string plan = "keep-all";

  CutModel cut() const {
    CutModel cut;
    cut.name = name;
    cut.make = [one = *this](const nn::Declaration& declaration, int member, int ranks) {
      return nn::make_field_model(one.keys, one.loss, one.shape, batch, declaration,
                                  nn::FieldCut{member, ranks});
    };
    cut.load = [sizes = shape](const nn::Model& model, std::int64_t number) {
      return batch_of(model, sizes, number);
    };
    cut.precision = precision;
    cut.plan = plan;
    return cut;
  }
};

Setting flat(const std::string& name, std::vector<std::int64_t> points) {
  Setting setting;
  setting.name = name;
  setting.keys.kind = "fno";
  setting.keys.layers = 2;
  setting.keys.hidden = 8;
  setting.keys.modes = {5, 6};
  setting.shape.input_channels = 2;
  setting.shape.target_channels = 1;
  setting.shape.points = std::move(points);
  return setting;
}

Setting sphere(const std::string& name, const std::string& grid, std::int64_t rows,
               std::int64_t columns) {
  Setting setting;
  setting.name = name;
  setting.keys.kind = "sfno";
  setting.keys.layers = 3;
  setting.keys.hidden = 6;
  setting.keys.scale_factor = 2;
  setting.loss = "area-l2";
  setting.shape.input_channels = 3;
  setting.shape.target_channels = 2;
  setting.shape.points = {rows, columns};
  setting.shape.grid = grid;
  setting.shape.area_weights =
      mean_one_weights(make_sphere_grid(sphere_grid_kind("grid", grid), rows, columns));
  return setting;
}

std::vector<Setting> settings() {
  std::vector<Setting> all;
  all.push_back(flat("neuralop", {13, 10}));

  Setting decoded = flat("decoded by point, losses by channel", {11, 9});
  decoded.loss = "relative-l2-channels";
  decoded.shape.target_channels = 2;
  for (std::int64_t i = 0; i < 2 * 99; ++i) {
    decoded.shape.target_mean.push_back(0.01 * static_cast<double>(i % 17));
    decoded.shape.target_deviation.push_back(1 + 0.1 * static_cast<double>(i % 7));
  }
  all.push_back(decoded);

  Setting gaps = flat("missing values, noise, after a step without gradients", {11, 8});
  gaps.shape.masked = true;
  gaps.shape.noise = 0.1;
  gaps.shape.push_forward = 1;
  gaps.shape.rollout = 2;
  gaps.loss = "area-l2";
  all.push_back(gaps);

  Setting slopes = flat("differences between rows", {11, 8});
  slopes.loss = "h1";
  slopes.shape.target_channels = 2;
  slopes.shape.target_mean = {0.2, -0.1};
  slopes.shape.target_deviation = {1.5, 0.7};
  all.push_back(slopes);

  Setting slopes_with_gaps = gaps;
  slopes_with_gaps.name = "differences between rows, missing values";
  slopes_with_gaps.loss = "h1";
  all.push_back(slopes_with_gaps);

  Setting ensemble = gaps;
  ensemble.name = "ensembles, missing values";
  ensemble.loss = "crps";
  ensemble.shape.members = 3;
  all.push_back(ensemble);

  Setting li = flat("li, padded", {13, 7});
  li.keys.block = "li";
  li.keys.padding = 4;
  li.keys.modes = {5, 3};
  all.push_back(li);

  Setting rollout = flat("rollout", {9, 8});
  rollout.keys.layers = 1;
  rollout.shape.rollout = 3;
  rollout.loss = "squared-l2";
  all.push_back(rollout);

  Setting solid = flat("three axes", {7, 6, 5});
  solid.keys.modes = {5, 4, 4};
  solid.keys.padding = 2;
  all.push_back(solid);

  for (const char* const factorization : {"tucker", "cp"}) {
    for (const char* const implementation : {"factorized", "reconstructed"}) {
      Setting tfno = flat(std::string(factorization) + ", " + implementation, {10, 8});
      tfno.keys.kind = "tfno";
      tfno.keys.rank = 0.4;
      tfno.keys.factorization = factorization;
      tfno.keys.implementation = implementation;
      all.push_back(tfno);
    }
  }
  return all;
}

std::vector<Setting> spheres() {
  std::vector<Setting> all;
  all.push_back(sphere("makani, odd rows", "equiangular", 17, 24));

  Setting small = sphere("torch-harmonics, rollout", "legendre-gauss", 18, 20);
  small.keys.block = "torch-harmonics";
  small.shape.rollout = 2;
  small.shape.input_channels = 2;
  all.push_back(small);

  Setting diagonal = sphere("by order", "equiangular", 19, 18);
  diagonal.keys.spectral_operator = "diagonal";
  diagonal.keys.norm = "none";
  diagonal.keys.big_skip = false;
  all.push_back(diagonal);

  Setting ensemble = sphere("ensembles", "equiangular", 17, 24);
  ensemble.loss = "crps";
  ensemble.shape.members = 2;
  ensemble.shape.noise = 0.2;
  all.push_back(ensemble);
  return all;
}

Setting adaptive() {
  Setting setting = flat("afno", {14, 12});
  setting.keys.kind = "afno";
  setting.keys.modes = RunConfig::Model().modes;
  setting.keys.patch = 2;
  setting.keys.spectral_blocks = 2;
  return setting;
}

class FieldTensorAxis : public TensorRanks {
 protected:
  void compare(const Setting& setting) {
    // Before a norm a bias has no gradient but what rounding leaves.
    TensorRanks::compare(setting.cut(), 1e-15);
  }
};

TEST_F(FieldTensorAxis, FourierOperatorsTrainAsOnOneRank) {
  for (const Setting& setting : settings()) compare(setting);
}

TEST_F(FieldTensorAxis, AdaptiveOperatorsTrainAsOnOneRank) {
  Setting setting = adaptive();
  compare(setting);
  setting.keys.hard_thresholding = 0.6;
  setting.shape.points = {10, 8};
  compare(setting);
}

TEST_F(FieldTensorAxis, SphericalOperatorsTrainAsOnOneRank) {
  for (const Setting& setting : spheres()) compare(setting);
}

TEST_F(FieldTensorAxis, WhateverIsRunAgain) {
  for (Setting setting : {settings()[0], spheres()[0]}) {
    for (const char* const plan : {"full", "selective"}) {
      setting.plan = plan;
      compare(setting);
    }
  }
}

TEST_F(FieldTensorAxis, OtherPrecisions) {
  for (const Precision precision : {Precision::Float32, Precision::BFloat16}) {
    for (Setting setting : {settings()[2], settings()[3], adaptive(), spheres()[0]}) {
      setting.precision = precision;
      compare_loosely(setting.cut(), precision == Precision::Float32 ? 1e-4 : 5e-2);
    }
  }
}

TEST_F(FieldTensorAxis, RefusesWhatCannotBeCut) {
  const auto refused = [](const Setting& setting, int members, const char* key, const char* what) {
    SCOPED_TRACE(setting.name);
    try {
      nn::make_field_model(setting.keys, setting.loss, setting.shape, 1, nn::Declaration(),
                           {0, members});
      FAIL() << "not refused";
    } catch (const ConfigError& error) {
      EXPECT_EQ(error.key(), key);
      EXPECT_NE(error.reason().find(what), std::string::npos) << error.reason();
    }
  };
  Setting line = flat("one axis", {12});
  line.keys.modes = {4};
  refused(line, 2, "grid.tensor", "two or three axes");
  // Of eight rows with the padding, the last of four ranks has the last two.
  Setting short_field = flat("five rows", {5, 9});
  short_field.keys.padding = 3;
  refused(short_field, 4, "grid.tensor", "the nearest that work: 2");
  Setting few_modes = flat("three modes", {20, 9});
  few_modes.keys.modes = {3, 4};
  refused(few_modes, 4, "grid.tensor", "the nearest that work: 3");
  Setting few_pairs = sphere("nine rows", "equiangular", 9, 16);
  refused(few_pairs, 4, "grid.tensor", "the nearest that work: 2");
  Setting few_patches = adaptive();
  few_patches.shape.points = {6, 8};
  refused(few_patches, 4, "grid.tensor", "the nearest that work: 3");
}

}  // namespace
}  // namespace garonne::exec
