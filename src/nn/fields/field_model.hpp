// Models on fields: neural operators, by the networks of nn/model_kind.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "nn/fields/field_rows.hpp"
#include "nn/model.hpp"

namespace garonne::nn {

// What the data says about the fields that a model is trained on.
struct FieldShape {
  std::int64_t input_channels = 0;
  std::int64_t target_channels = 0;
  std::vector<std::int64_t> points;  // along each axis: [rows, columns], …; one to three axes
  std::string grid = "box";          // box, periodic, equiangular, legendre-gauss, regional
  std::int64_t rollout = 1;          // applications of the network, each with a target
  // Applications before those: without gradients, targets or a loss (push-forward; Brandstetter,
  // Worrall, Welling, arXiv 2202.03376).
  std::int64_t push_forward = 0;
  bool masked = false;  // targets lack values
  double noise = 0;     // deviation of Gaussian noise on the loaded input in training
  // Of the ensemble that each sample becomes, by noise on its input, in validation too. Networks
  // have all of them side by side: a batch of samples is `members` times as many fields.
  std::int64_t members = 1;
  std::vector<double> area_weights;  // [points[0]], mean 1; empty = uniform
  // Losses are of decoded fields, target · deviation + mean; [target_channels] or [target_channels,
  // points…]; empty = of the fields as they are loaded.
  std::vector<double> target_mean;
  std::vector<double> target_deviation;
  // Where the field is cut, all of the above is of this member's rows: points[0] are its slots.
  FieldCut cut;
  FieldRows rows;

  std::int64_t count() const;        // of all points
  std::int64_t whole_count() const;  // of all points of all members
};

// The part of a member with these rows; values of rows that are not there are 0.
FieldShape cut_field(const FieldShape& whole, const FieldRows& rows, const FieldCut& cut);

// Loaded values of micro-batches of `batch` samples, in the compute type:
//   0 = input [batch, input_channels, points…], 1 = target [rollout, batch, target_channels,
//   points…], and where the shape is masked 2 = mask [push_forward + rollout, batch,
//   target_channels, points…], 0 where the target has no value, else 1.
// The loss is the mean over the rollout of the losses of its steps. From the second step on the
// input is the window of the channels before, moved by the newest prediction: channel c of the
// input is channel c + target_channels of the one before, and the prediction comes last, 0 where
// the mask of its step is.
// With members, values between nodes have those of a sample side by side: [batch · members, …].
// `loss` is train.loss. Throws ConfigError: keys that do not fit together or to the fields, or that
// the kind does not use and that are not at their default.
// `cut`: whose part it is. The graph is equal on all members; a value on points has those of
// Model::rows in the place of all rows, weights of spectra are cut by modes, all others are whole.
// Throws ConfigError (grid.tensor, train.loss) for what cannot be cut so.
Model make_field_model(const RunConfig::Model& keys, const std::string& loss,
                       const FieldShape& shape, std::int64_t batch, const Declaration& declaration,
                       const FieldCut& cut = {});

// The same parameters; one application that ends in the prediction [batch, points…,
// target_channels], without noise. Loaded value: 0 = input.
Model make_field_predictor(const RunConfig::Model& keys, const FieldShape& shape,
                           std::int64_t batch, const Declaration& declaration);

}  // namespace garonne::nn
