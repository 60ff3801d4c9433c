// One pass of Adafactor over its parameters, and the sums that have to be there before.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"
#include "kernels/matrix_part.hpp"
#include "kernels/scalar.hpp"

#include <cstdint>

namespace garonne::kernels {

// What of Adafactor depends on the step.
struct AdafactorRates {
  double learning_rate = 0.0;
  double kept = 0.0;   // of the moments: 1 - step^-beta2_power
  double added = 1.0;  // the rest
};

// Where the numbers of a first round of sums are; those of rows and columns follow.
struct AdafactorSums {
  static constexpr std::int64_t parameter = 0;  // squares of the parameter
  static constexpr std::int64_t slopes = 1;     // squares of what is given for its gradient
  static constexpr std::int64_t moments = 2;    // the row moments, before the step
  static constexpr std::int64_t sides = 3;
};

struct Adafactor {
  AdafactorRates rates;
  // Where not null, they are read there, in the memory of the queue's device: for kernels that are
  // recorded once and carried out in many steps.
  const AdafactorRates* rates_place = nullptr;
  double square_epsilon = 1e-30;
  double update_limit = 1.0;     // of the root mean square of an update; 0 = none
  double smallest_scale = 1e-3;  // of the parameter; 0 = steps are not as large as the parameter
  double weight_decay = 0.0;     // 0 for what is not a matrix
  double l2 = 0.0;               // weight decay that goes through the moments instead
  // Both of the whole matrix, in the memory of the queue's device: as add_adafactor_sums and
  // add_adafactor_squares add them up.
  const double* sums = nullptr;
  const double* squares = nullptr;
};

// Shazeer and Stern, arXiv 1804.04235. With g = gradient * gradient_scale + l2 * p: row moments R =
// kept R + added (mean of g^2 over a row + square_epsilon), column moments C alike; u = g / sqrt(R
// C / mean of R); p -= learning_rate * max(smallest_scale, rms of p) * u / max(1, rms of u /
// update_limit) after p *= 1 - learning_rate * weight_decay, the means over all of the matrix.
// Where gradient_scale is not finite nothing is changed. `type` is Float32 or Float64
// (InternalError otherwise). bfloat16_copy, where not null, gets the new parameters rounded to
// nearest, ties to even. Of n elements those beyond part.elements are padding, which stays.
void adafactor_update(const Queue& queue, ElementType type,
                      void* parameter,       // type [n]
                      void* row_moments,     // type [part.rows]
                      void* column_moments,  // type [part.columns]
                      const void* gradient,  // type [n]
                      std::int64_t n, const MatrixPart& part, const Adafactor& options,
                      const Scalar& gradient_scale,
                      void* bfloat16_copy);  // bfloat16 [n] or null

// Adds the sums of these elements to `sums` [AdafactorSums::sides + part.rows + part.columns], all
// 0 before, in double and in an order that depends on the part only. Changes nothing else; adds
// nothing of gradients where gradient_scale is not finite. Of `options` it takes l2 alone.
void add_adafactor_sums(const Queue& queue, ElementType type,
                        const void* parameter,    // type [n]
                        const void* row_moments,  // type [part.rows]
                        const void* gradient,     // type [n]
                        const MatrixPart& part, const Adafactor& options,
                        const Scalar& gradient_scale, double* sums);

// total += u^2 of what adafactor_update would make of the same, which does not take
// options.squares. Else as add_adafactor_sums.
void add_adafactor_squares(const Queue& queue, ElementType type,
                           const void* parameter,       // type [n]
                           const void* row_moments,     // type [part.rows]
                           const void* column_moments,  // type [part.columns]
                           const void* gradient,        // type [n]
                           const MatrixPart& part, const Adafactor& options,
                           const Scalar& gradient_scale, double* total);

}  // namespace garonne::kernels
