// Losses of predicted fields, from the norms of error and wanted field, and their gradients. Sums
// are in float64 whatever the type, in the order of channels of samples, then of points. Of
// ensembles the fair CRPS of a point (kernels/ensemble_score.hpp) is in the place of its squared
// error.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"
#include "kernels/point_run.hpp"
#include "kernels/scalar.hpp"

#include <cstdint>
#include <span>

namespace garonne::kernels {

// Differences along one axis of a grid of before x count x after points: central, at a spacing of
// 1 / count; of third order and one-sided at the ends of an axis that is not periodic.
struct AxisDifference {
  std::int64_t before = 1;
  std::int64_t count = 1;
  std::int64_t after = 1;
  bool periodic = false;
};

// A prediction, what it should be, and how they are compared. Decoded values are value · deviation
// + mean. A pair is a channel of a sample; a group is pairs that share their norms.
struct FieldComparison {
  ElementType type = ElementType::Float32;
  const void* prediction = nullptr;  // T [batch, members, points, channels]
  const void* target = nullptr;      // T [steps, batch, channels, points]
  std::int64_t target_step = 0;
  const void* mask = nullptr;  // T as the target, 0 where there is no value; null: all are there
  std::int64_t mask_step = 0;
  std::int64_t batch = 0;
  std::int64_t members = 1;  // more: an ensemble for each sample; not relative, no differences
  std::int64_t points = 0;
  std::int64_t channels = 0;
  const double* deviation = nullptr;    // [channels] or [channels, points]; null: 1
  const double* mean = nullptr;         // the same; null: 0
  bool decodes_by_point = false;        // which of the two shapes they have
  std::span<const PointRun> runs;       // the points that count
  const double* row_weights = nullptr;  // of what is summed, by row of points; null: 1
  std::int64_t points_in_row = 1;
  std::span<const AxisDifference> differences;  // whose squares count too; all points are in runs
  double* scratch = nullptr;                    // [3, points] where there are differences
  std::int64_t pairs_in_group = 1;
  bool relative = false;  // norms are square roots, and the error's is over the wanted field's

  std::int64_t groups() const { return batch * channels / pairs_in_group; }
};

// The sums of a group: squares of the error or scores, squares of the wanted field (0 unless
// relative), and the weights of the points.
void field_norms(const Queue& queue, const FieldComparison& fields,
                 double* norms);  // [3, groups]

// The chain rule through the squares of the error or the scores.
void field_norms_gradient(const Queue& queue, const FieldComparison& fields,
                          const double* gradient_errors,  // [groups]
                          void* gradient_prediction);     // T as the prediction

// The mean over groups of error / weights, or of √error / (√wanted + 1e-8) where relative; 0 of a
// group that has nothing.
void field_loss(const Queue& queue, const FieldComparison& fields, double* loss);

// Its gradient times `outer`.
void field_loss_gradient(const Queue& queue, const FieldComparison& fields, const Scalar& outer,
                         void* gradient_prediction);  // T as the prediction

// The norms of the parts of a field that is cut, which are added up in the order of the members.
struct GatheredNorms {
  const double* norms = nullptr;  // [members, 3, groups]
  std::int64_t members = 0;
  std::int64_t groups = 0;
  bool relative = false;
};
void gathered_field_loss(const Queue& queue, const GatheredNorms& gathered, double* loss);
void gathered_field_loss_gradient(const Queue& queue, const GatheredNorms& gathered,
                                  const Scalar& outer,
                                  double* gradient_norms);  // [members, 3, groups]

}  // namespace garonne::kernels
