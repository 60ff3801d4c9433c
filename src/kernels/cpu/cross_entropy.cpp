#include "kernels/cross_entropy.hpp"

#include "base/error.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/device/cross_entropy.hpp"
#include "kernels/dispatch.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace garonne::kernels {

namespace {

// What all pieces say about a row.
class GatheredRow {
 public:
  GatheredRow(const double* statistics, std::int64_t row, std::int64_t pieces, std::int64_t rows)
      : statistics_(statistics), row_(row), pieces_(pieces), rows_(rows) {}

  std::int64_t place(std::int64_t piece) const { return piece * 2 * rows_ + row_; }

  double target_logit() const {
    double sum = 0;
    for (std::int64_t piece = 0; piece < pieces_; ++piece) sum += statistics_[place(piece) + rows_];
    return sum;
  }

  double log_sum() const {
    double most = -std::numeric_limits<double>::infinity();
    for (std::int64_t piece = 0; piece < pieces_; ++piece)
      most = std::max(most, statistics_[place(piece)]);
    double total = 0;
    for (std::int64_t piece = 0; piece < pieces_; ++piece)
      total += std::exp(statistics_[place(piece)] - most);
    return most + std::log(total);
  }

 private:
  const double* statistics_;
  std::int64_t row_;
  std::int64_t pieces_;
  std::int64_t rows_;
};

}  // namespace

void cross_entropy(const Queue& queue, ElementType type, void* logits, const std::int64_t* targets,
                   double scale, bool write_gradient, double* row_losses, double* loss,
                   std::int64_t rows, std::int64_t vocabulary) {
  const auto on_device = [&](const auto& place) {
    device::cross_entropy(place, type, logits, targets, scale, write_gradient, row_losses, loss,
                          rows, vocabulary);
  };
  if (put_on_device(queue, on_device)) return;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (targets[row] < 0 || targets[row] >= vocabulary) {
      throw InternalError("cross_entropy: target " + std::to_string(targets[row]) + " of row " +
                          std::to_string(row) + " is outside the vocabulary of " +
                          std::to_string(vocabulary));
    }
  }
  const CrossEntropyArguments arguments{logits,         targets,    scale,
                                        write_gradient, row_losses, vocabulary};
  const auto loop = loops().cross_entropy[type];
  for_ranges(queue, rows, row_grain(4 * vocabulary), 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
  double total = 0;
  for (std::int64_t row = 0; row < rows; ++row) total += row_losses[row];
  *loss = total * scale;
}

void logit_statistics(const Queue& queue, ElementType type, const void* logits,
                      const std::int64_t* targets, const VocabularyPiece& piece, double* log_sums,
                      double* target_logits, std::int64_t rows) {
  const auto on_device = [&](const auto& place) {
    device::logit_statistics(place, type, logits, targets, piece, log_sums, target_logits, rows);
  };
  if (put_on_device(queue, on_device)) return;
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
  const auto on_device = [&](const auto& place) {
    device::logit_gradient(place, type, logits, targets, piece, log_sums, log_sum_gradients,
                           target_gradients, gradient, rows);
  };
  if (put_on_device(queue, on_device)) return;
  const LogitGradientArguments arguments{logits,      targets,  piece.first,       piece.columns,
                                         piece.width, log_sums, log_sum_gradients, target_gradients,
                                         gradient};
  const auto loop = loops().logit_gradient[type];
  for_ranges(queue, rows, row_grain(4 * piece.width), 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

void gathered_cross_entropy(const Queue& queue, const double* statistics, double* loss,
                            std::int64_t pieces, std::int64_t rows) {
  const auto on_device = [&](const auto& place) {
    device::gathered_cross_entropy(place, statistics, loss, pieces, rows);
  };
  if (put_on_device(queue, on_device)) return;
  double sum = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const GatheredRow gathered(statistics, row, pieces, rows);
    sum += gathered.log_sum() - gathered.target_logit();
  }
  *loss = sum / static_cast<double>(rows);
}

void gathered_cross_entropy_gradient(const Queue& queue, const double* statistics, double outer,
                                     double* gradient, std::int64_t pieces, std::int64_t rows) {
  const auto on_device = [&](const auto& place) {
    device::gathered_cross_entropy_gradient(place, statistics, outer, gradient, pieces, rows);
  };
  if (put_on_device(queue, on_device)) return;
  const double scale = outer / static_cast<double>(rows);
  for (std::int64_t row = 0; row < rows; ++row) {
    const GatheredRow gathered(statistics, row, pieces, rows);
    const double whole = gathered.log_sum();
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const std::int64_t at = gathered.place(piece);
      gradient[at] = scale * std::exp(statistics[at] - whole);
      gradient[at + rows] = -scale;
    }
  }
}

}  // namespace garonne::kernels
