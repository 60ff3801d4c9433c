// Nodes that models on fields share. Values are [batch · points, channels], row-major.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nn/fields/field_rows.hpp"
#include "nn/node.hpp"
#include "nn/operators/field_network.hpp"

namespace garonne::nn {

// What is appended to the channels of the input: for each axis a coordinate that is 0 at the first
// point.
enum class Coordinates {
  None,
  Periodic,   // 1 would be one point after the last
  Inclusive,  // 1 at the last point
};

// x · weightᵀ + bias [batch · points, outputs], x = the window's channels, then the coordinates.
// Parameters: weight [outputs, channels (+ axes)], bias [outputs] where `bias`. Inputs: the
// window's values.
std::unique_ptr<Node> make_field_lift(const FieldShape& shape, std::int64_t batch,
                                      const FieldWindow& window, Coordinates coordinates,
                                      std::int64_t outputs, bool bias = true);

// x [rows, channels] -> the exact GELU, x/2 · (1 + erf(x/√2)).
std::unique_ptr<Node> make_exact_gelu(std::int64_t rows, std::int64_t channels);

// x [rows, channels], skip [rows, channels], gate [channels] -> x + gate · skip
std::unique_ptr<Node> make_gated_add(std::int64_t rows, std::int64_t channels);

// x [rows, first], y [rows, second] -> [rows, first + second], the channels of x and then of y
std::unique_ptr<Node> make_joined_channels(std::int64_t rows, std::int64_t first,
                                           std::int64_t second);

// x [batch · points, channels] -> [batch · more points, channels], with zeros at the far end of
// each axis; and back.
// Of a cut field, `rows` are those of the field without padding: the slots are the same before and
// after, and those without such a row become zeros.
std::unique_ptr<Node> make_field_pad(std::int64_t batch, std::vector<std::int64_t> points,
                                     std::int64_t padding, std::int64_t channels,
                                     const FieldRows& rows = {});
std::unique_ptr<Node> make_field_crop(std::int64_t batch, std::vector<std::int64_t> points,
                                      std::int64_t padding, std::int64_t channels,
                                      const FieldRows& rows = {});

// prediction [batch · points, target_channels], mask [steps, samples, target_channels, points…] ->
// the prediction where the mask of step `step` is not 0, else 0.
std::unique_ptr<Node> make_field_fill(const FieldShape& shape, std::int64_t batch,
                                      std::int64_t step);

// prediction [batch · members · points, target_channels], members of a sample side by side, target
// [rollout, batch, target_channels, points…] and, where the shape is masked, mask [push_forward +
// rollout, batch, target_channels, points…] -> loss of step `step` of the rollout, a float64
// scalar, over decoded fields d and t:
//   squared-l2            mean of (d - t)²
//   area-l2               the same, weighted with the area of each row
//   crps                  mean of the fair CRPS of the members of a sample, weighted likewise
//   relative-l2           mean over samples of ‖d - t‖ / (‖t‖ + 1e-8), over channels and points
//   relative-l2-channels  mean over samples and channels of the same over points
//   h1                    as relative-l2-channels with ‖·‖² + ‖∂·‖² for each axis: central
//                         differences, of third order and one-sided at the ends of axes that are
//                         not periodic, at a spacing of 1 / points, as in neuraloperator
// Points where the mask of step push_forward + step is 0 are left out of all sums, means are over
// what is left of a channel of a sample, and differences count where every value that they are made
// of is there. What has nothing left counts as 0.
// Throws ConfigError (train.loss; train.members and train.noise where they are not those of the
// loss).
std::unique_ptr<Node> make_field_loss(const std::string& loss, const FieldShape& shape,
                                      std::int64_t batch, std::int64_t step);

// The same loss of a field that is cut, in two parts with a make_gather_statistics between them.
// The sums that it is made of, over this member's rows: float64 [3, groups], squares of errors and
// of wanted fields, and weights. Inputs as of make_field_loss.
std::unique_ptr<Node> make_field_norms(const std::string& loss, const FieldShape& shape,
                                       std::int64_t batch, std::int64_t step);
std::int64_t field_norm_groups(const std::string& loss, const FieldShape& shape,
                               std::int64_t batch);
// Those of all members, float64 [members, 3, groups] -> the loss, a float64 scalar.
std::unique_ptr<Node> make_gathered_field_loss(const std::string& loss, const FieldShape& shape,
                                               std::int64_t batch);

// Where a loss has terms between rows, all rows are compared instead of their norms. What
// make_field_loss takes -> float64 [2 or 3, batch · points · target_channels] of this member's
// rows: prediction, target and mask of the step.
bool needs_whole_field(const std::string& loss);  // throws ConfigError (train.loss)
std::unique_ptr<Node> make_compared_fields(const FieldShape& shape, std::int64_t batch,
                                           std::int64_t step);
// Those of all members, whose rows of `whole` are given -> the loss, a float64 scalar.
std::unique_ptr<Node> make_whole_field_loss(const std::string& loss, const FieldShape& whole,
                                            std::vector<FieldRows> rows_of_members,
                                            std::int64_t batch);

// Float64 scalars -> their mean, a float64 scalar; the last node of a rollout.
std::unique_ptr<Node> make_mean_loss(std::int64_t losses);

}  // namespace garonne::nn
