// Cross entropy of rows of logits, and its gradient in place of the logits.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

// row loss = logsumexp(logits) - logits[target], computed in float for Float32 and BFloat16 and in
// double for Float64. Returns the sum of the row losses in row order, in nats (not divided by rows,
// not scaled). With write_gradient the logits become (softmax - onehot) * gradient_scale.
// InternalError on a target outside the vocabulary.
double cross_entropy(const Queue& queue, ElementType type,
                     void* logits,                 // T [rows, vocabulary]
                     const std::int64_t* targets,  // [rows]
                     double gradient_scale, bool write_gradient,
                     double* row_losses,  // [rows], always written
                     std::int64_t rows, std::int64_t vocabulary);

// A rank's piece of the vocabulary: the rows of logits are `width` long, their first `columns` are
// tokens first … first + columns - 1, the rest is padding.
struct VocabularyPiece {
  std::int64_t first = 0;
  std::int64_t columns = 0;
  std::int64_t width = 0;
};

// By row: logsumexp over the piece (-inf where it is empty), and the target's logit or 0 where the
// target is in another piece. Targets are not checked.
void logit_statistics(const Queue& queue, ElementType type,
                      const void* logits,           // T [rows, width]
                      const std::int64_t* targets,  // [rows]
                      const VocabularyPiece& piece,
                      double* log_sums,       // [rows]
                      double* target_logits,  // [rows]
                      std::int64_t rows);

// The chain rule through logit_statistics: gradient = exp(logit - log_sum) · log_sum_gradient, plus
// target_gradient at the target; 0 in the padding.
void logit_gradient(const Queue& queue, ElementType type, const void* logits,
                    const std::int64_t* targets, const VocabularyPiece& piece,
                    const double* log_sums,           // [rows]
                    const double* log_sum_gradients,  // [rows]
                    const double* target_gradients,   // [rows]
                    void* gradient,                   // T [rows, width]
                    std::int64_t rows);

}  // namespace garonne::kernels
