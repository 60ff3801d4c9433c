// kernels/cross_entropy.hpp on a device. Sums along a row and over rows are Team::sum's, of
// float64; exponentials are the device's.
#pragma once

#include "kernels/cross_entropy.hpp"
#include "kernels/device/place.hpp"
#include "kernels/element_type.hpp"

#include <cstdint>

namespace garonne::kernels::device {

// A target outside the vocabulary makes the loss a number that is none, since a kernel cannot
// throw.
void cross_entropy(const Place& place, ElementType type, void* logits, const std::int64_t* targets,
                   double scale, bool write_gradient, double* row_losses, double* loss,
                   std::int64_t rows, std::int64_t vocabulary);

void logit_statistics(const Place& place, ElementType type, const void* logits,
                      const std::int64_t* targets, const VocabularyPiece& piece, double* log_sums,
                      double* target_logits, std::int64_t rows);

void logit_gradient(const Place& place, ElementType type, const void* logits,
                    const std::int64_t* targets, const VocabularyPiece& piece,
                    const double* log_sums, const double* log_sum_gradients,
                    const double* target_gradients, void* gradient, std::int64_t rows);

void gathered_cross_entropy(const Place& place, const double* statistics, double* loss,
                            std::int64_t pieces, std::int64_t rows);

void gathered_cross_entropy_gradient(const Place& place, const double* statistics, double outer,
                                     double* gradient, std::int64_t pieces, std::int64_t rows);

}  // namespace garonne::kernels::device
