// Cross entropy of rows of logits, and its gradient in place of the logits.
#pragma once

#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels {

// row loss = logsumexp(logits) - logits[target], computed in float for Float32 and BFloat16 and in
// double for Float64. Returns the sum of the row losses in row order, in nats (not divided by rows,
// not scaled). With write_gradient the logits become (softmax - onehot) * gradient_scale.
// InternalError on a target outside the vocabulary.
double cross_entropy(ElementType type,
                     void* logits,                 // T [rows, vocabulary]
                     const std::int64_t* targets,  // [rows]
                     double gradient_scale, bool write_gradient,
                     double* row_losses,  // [rows], always written
                     std::int64_t rows, std::int64_t vocabulary);

}  // namespace garonne::kernels
