// What the nodes of models on fields declare, against what the counting allocator sees.
#include <gtest/gtest.h>

#include <set>

#include "exec/profile/profile.hpp"
#include "nn/compute_session.hpp"
#include "nn/declared_bytes.hpp"
#include "nn/fields/field_model.hpp"
#include "nn/precisions.hpp"

namespace garonne::nn {
namespace {

void check_declared(const RunConfig::Model& keys, const std::string& loss, const FieldShape& shape,
                    std::int64_t batch, Precision precision, int threads,
                    const FieldCut& cut = {}) {
  SCOPED_TRACE(keys.kind + " " + keys.block + " " + std::to_string(shape.points.size()) + "d " +
               precision_name(precision) + " threads " + std::to_string(threads));
  garonne::test::use_threads(threads);
  Declaration declaration;
  declaration.precision = precision;
  declaration.threads = threads;
  const Model model = make_field_model(keys, loss, shape, batch, declaration, cut);
  plan::CostTable table;
  exec::profile_model(Queue(), model, declaration, table, [](int, int) {});
  garonne::test::use_threads(2);
  for (const auto& node : model.graph.nodes) {
    if (node.communicates()) continue;
    SCOPED_TRACE(node.name);
    ASSERT_EQ(table.rows.count(node.cost_key), 1U);
    const plan::CostRow& row = table.rows.at(node.cost_key);
    // Bounds: workspaces of oneDNN, which does bfloat16 products, and what autograd does with the
    // factors of a weight.
    const bool multiplies = node.kind == "linear" || node.kind == "spectral_layer" ||
                            node.kind == "field_lift" || node.kind == "spectral_synthesis";
    const bool contracts = node.kind == "spectral_layer" || node.kind == "spectral_contraction";
    const bool bound =
        (multiplies && precision == Precision::BFloat16) || (contracts && keys.kind == "tfno");
    garonne::test::expect_declared_bytes(row, model, declaration, node, bound);
  }
}

FieldShape shape_of(std::vector<std::int64_t> points, std::int64_t inputs, std::int64_t targets,
                    std::int64_t rollout = 1) {
  FieldShape shape;
  shape.points = std::move(points);
  shape.input_channels = inputs;
  shape.target_channels = targets;
  shape.rollout = rollout;
  return shape;
}

TEST(DeclaredFieldBytes, OfBothBlocksInOneToThreeDimensions) {
  RunConfig::Model keys;
  keys.kind = "fno";
  keys.layers = 2;
  keys.hidden = 12;
  for (const Precision precision : precisions) {
    for (const int threads : {1, 2}) {
      keys.block = "neuralop";
      keys.padding = 0;
      keys.modes = {6, 8};
      check_declared(keys, "h1", shape_of({16, 24}, 2, 1), 3, precision, threads);
      keys.modes = {5};
      check_declared(keys, "auto", shape_of({33}, 1, 2), 1, precision, threads);
      keys.modes = {2, 3, 4};
      keys.block = "li";
      keys.padding = 3;
      check_declared(keys, "relative-l2-channels", shape_of({5, 6, 7}, 3, 1), 2, precision,
                     threads);
    }
  }
}

TEST(DeclaredFieldBytes, OfFactorisedWeights) {
  RunConfig::Model keys;
  keys.kind = "tfno";
  keys.layers = 1;
  keys.hidden = 16;
  keys.modes = {8, 8};
  keys.rank = 0.3;
  for (const Precision precision : precisions) {
    for (const char* const factorization : {"tucker", "cp"}) {
      for (const char* const implementation : {"factorized", "reconstructed"}) {
        keys.factorization = factorization;
        keys.implementation = implementation;
        check_declared(keys, "auto", shape_of({16, 16}, 1, 1), 2, precision, 1);
      }
    }
  }
}

TEST(DeclaredFieldBytes, OfLevels) {
  RunConfig::Model keys;
  keys.kind = "ufno";
  keys.hidden = 12;
  for (const Precision precision : precisions) {
    for (const int threads : {1, 2}) {
      keys.levels = 2;
      keys.padding = 0;
      keys.modes = {6, 8};
      check_declared(keys, "h1", shape_of({16, 24}, 2, 1), 3, precision, threads);
      keys.levels = 3;
      keys.padding = 7;
      keys.modes = {40};
      check_declared(keys, "auto", shape_of({33}, 1, 2), 1, precision, threads);
      keys.levels = 1;
      keys.padding = 1;
      keys.modes = {6, 3, 4};
      check_declared(keys, "squared-l2", shape_of({5, 7, 9}, 3, 1, 2), 2, precision, threads);
    }
  }
}

TEST(DeclaredFieldBytes, OfPartsOfACutField) {
  for (const Precision precision : precisions) {
    for (const int member : {0, 2}) {
      const FieldCut cut{member, 3};
      RunConfig::Model keys;
      keys.kind = "fno";
      keys.layers = 1;
      keys.hidden = 12;
      keys.modes = {7, 6};
      check_declared(keys, "relative-l2", shape_of({13, 10}, 2, 1, 2), 2, precision, 1, cut);
      keys.block = "li";
      keys.padding = 3;
      keys.modes = {3, 3, 2};
      check_declared(keys, "auto", shape_of({13, 10, 5}, 2, 1), 2, precision, 2, cut);
      keys.kind = "tfno";
      keys.modes = {4, 3};
      check_declared(keys, "auto", shape_of({16, 12}, 1, 1), 2, precision, 1, cut);

      keys = RunConfig::Model();
      keys.kind = "sfno";
      keys.layers = 3;
      keys.hidden = 10;
      keys.scale_factor = 2;
      FieldShape sphere = shape_of({18, 24}, 3, 2);
      sphere.grid = "equiangular";
      check_declared(keys, "area-l2", sphere, 2, precision, 1, cut);

      keys.kind = "afno";
      keys.scale_factor = RunConfig::Model().scale_factor;
      keys.patch = 2;
      keys.spectral_blocks = 2;
      check_declared(keys, "squared-l2", shape_of({14, 12}, 2, 2), 2, precision, 2, cut);
    }
  }
}

TEST(DeclaredFieldBytes, OfARollout) {
  RunConfig::Model keys;
  keys.kind = "fno";
  keys.layers = 1;
  keys.hidden = 8;
  keys.modes = {4, 4};
  for (const Precision precision : precisions)
    check_declared(keys, "auto", shape_of({8, 8}, 3, 2, 3), 2, precision, 2);
}

TEST(DeclaredFieldBytes, OfEnsembles) {
  FieldShape shape = shape_of({8, 12}, 3, 2, 2);
  shape.grid = "equiangular";
  shape.push_forward = 1;
  shape.members = 3;
  shape.noise = 0.1;
  for (const Precision precision : precisions) {
    RunConfig::Model keys;
    keys.layers = 1;
    keys.hidden = 8;
    keys.kind = "sfno";
    for (const FieldCut& cut : {FieldCut(), FieldCut{1, 2}}) {
      shape.masked = !cut.cuts();
      check_declared(keys, "crps", shape, 2, precision, 2, cut);
    }
    keys.kind = "fno";
    keys.modes = {4, 4};
    check_declared(keys, "crps", shape, 1, precision, 1);
    keys.modes.clear();
    keys.kind = "afno";
    keys.patch = 4;
    keys.spectral_blocks = 2;
    check_declared(keys, "crps", shape, 2, precision, 1);
  }
}

TEST(DeclaredFieldBytes, OfMasksNoiseAndStepsWithoutGradients) {
  RunConfig::Model keys;
  keys.layers = 1;
  keys.hidden = 8;
  FieldShape shape = shape_of({8, 12}, 3, 2, 2);
  shape.push_forward = 2;
  shape.masked = true;
  shape.noise = 0.1;
  for (const Precision precision : precisions) {
    keys.kind = "fno";
    keys.modes = {4, 4};
    check_declared(keys, "h1", shape, 2, precision, 2);
    keys.modes.clear();
    keys.kind = "afno";
    keys.patch = 4;
    keys.spectral_blocks = 2;
    check_declared(keys, "auto", shape, 2, precision, 1);
    keys.patch = RunConfig().model.patch;
    keys.spectral_blocks = RunConfig().model.spectral_blocks;
  }
}

}  // namespace
}  // namespace garonne::nn
