// Cross entropy of rows of logits, and its gradient in place of the logits.
#pragma once

#include "base/device.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

// row loss = logsumexp(logits) - logits[target], computed in float for Float32 and BFloat16 and in
// double for Float64. loss = the sum of the row losses in row order, in nats, times `scale`. With
// write_gradient the logits become (softmax - onehot) * scale. InternalError on a target outside
// the vocabulary.
void cross_entropy(const Queue& queue, ElementType type,
                   void* logits,                 // T [rows, vocabulary]
                   const std::int64_t* targets,  // [rows]
                   double scale, bool write_gradient,
                   double* row_losses,  // [rows], always written
                   double* loss, std::int64_t rows, std::int64_t vocabulary);

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

// What the pieces' logit_statistics give together: loss = the mean over rows, in their order, of
// logsumexp over all pieces - the target's logit.
void gathered_cross_entropy(const Queue& queue,
                            const double* statistics,  // [pieces, 2, rows]: log sums, target logits
                            double* loss, std::int64_t pieces, std::int64_t rows);

// Its gradient times `outer`.
void gathered_cross_entropy_gradient(const Queue& queue,
                                     const double* statistics,  // [pieces, 2, rows]
                                     double outer,
                                     double* gradient,  // [pieces, 2, rows]
                                     std::int64_t pieces, std::int64_t rows);

}  // namespace garonne::kernels
