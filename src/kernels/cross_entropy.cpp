#include "kernels/cross_entropy.hpp"

#include "base/error.hpp"
#include "kernels/loops.hpp"
#include "kernels/parallel.hpp"

#include <string>

namespace garonne::kernels {

double cross_entropy(ElementType type, void* logits, const std::int64_t* targets,
                     double gradient_scale, bool write_gradient, double* row_losses,
                     std::int64_t rows, std::int64_t vocabulary) {
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
  for_ranges(rows, row_grain(4 * vocabulary), 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
  double total = 0;
  for (std::int64_t row = 0; row < rows; ++row) total += row_losses[row];
  return total;
}

}  // namespace garonne::kernels
