#include "kernels/cross_entropy.hpp"

#include "base/error.hpp"
#include "kernels/cpu/expect_host.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"

#include <string>

namespace garonne::kernels {

double cross_entropy(const Queue& queue, ElementType type, void* logits,
                     const std::int64_t* targets, double gradient_scale, bool write_gradient,
                     double* row_losses, std::int64_t rows, std::int64_t vocabulary) {
  expect_host(queue);
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] < 0 || targets[row] >= vocabulary) {
      throw InternalError("cross_entropy: target " + std::to_string(targets[row]) + " of row " +
                          std::to_string(row) + " is outside the vocabulary of " +
                          std::to_string(vocabulary));
    }
  }
  const CrossEntropyArguments arguments{logits,         targets,    gradient_scale,
                                        write_gradient, row_losses, vocabulary};
  const auto loop = loops().cross_entropy[type];
  for_ranges(queue, rows, row_grain(4 * vocabulary), 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
  double total = 0;
  for (std::int64_t row = 0; row < rows; ++row) total += row_losses[row];
  return total;
}

void logit_statistics(const Queue& queue, ElementType type, const void* logits,
                      const std::int64_t* targets, const VocabularyPiece& piece, double* log_sums,
                      double* target_logits, std::int64_t rows) {
  expect_host(queue);
  const LogitStatisticsArguments arguments{logits,      targets,  piece.first,  piece.columns,
                                           piece.width, log_sums, target_logits};
  const auto loop = loops().logit_statistics[type];
  for_ranges(queue, rows, row_grain(4 * piece.width), 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

void logit_gradient(const Queue& queue, ElementType type, const void* logits,
                    const std::int64_t* targets, const VocabularyPiece& piece,
                    const double* log_sums, const double* log_sum_gradients,
                    const double* target_gradients, void* gradient, std::int64_t rows) {
  expect_host(queue);
  const LogitGradientArguments arguments{logits,      targets,  piece.first,       piece.columns,
                                         piece.width, log_sums, log_sum_gradients, target_gradients,
                                         gradient};
  const auto loop = loops().logit_gradient[type];
  for_ranges(queue, rows, row_grain(4 * piece.width), 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

}  // namespace garonne::kernels
