// Weights of attention with dropout, a tile at a time, against loops in double.
#include "kernels/attention_tile.hpp"

#include "kernels/arrays.hpp"
#include "kernels/attention_tiles.hpp"
#include "kernels/dropout_mask.hpp"

#include "base/error.hpp"

#include <cmath>

namespace garonne::kernels::test {

namespace {

struct Wanted {
  std::vector<double> weights;
  std::vector<double> log_sums;
  std::vector<double> gradient;
};

Wanted wanted_of(const TileCase& c, const Array& scores, const Array& given) {
  const AttentionTile& tile = c.tile;
  const std::int64_t columns = columns_of(tile);
  Wanted wanted;
  wanted.log_sums.assign(static_cast<std::size_t>(matrices_of(tile) * tile.sequence), 9.0);
  for (std::int64_t matrix = 0; matrix < matrices_of(tile); ++matrix) {
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      const std::int64_t query = tile.first_row + row;
      const std::int64_t first = (matrix * tile.rows + row) * columns;
      double total = 0;
      for (std::int64_t j = 0; j <= query; ++j) total += std::exp(scores[first + j] * tile.scale);
      wanted.log_sums[static_cast<std::size_t>(matrix * tile.sequence + query)] = std::log(total);
      const auto weight = [&](std::int64_t j) {
        return std::exp(scores[first + j] * tile.scale) / total;
      };
      const auto kept = [&](std::int64_t j) {
        const std::int64_t head = tile.first_head + matrix % tile.heads;
        return dropout_factor(c.dropout, c.samples[static_cast<std::size_t>(matrix / tile.heads)],
                              (head * tile.sequence + query) * tile.sequence + j);
      };
      double mean = 0;
      for (std::int64_t j = 0; j <= query; ++j) mean += weight(j) * kept(j) * given[first + j];
      for (std::int64_t j = 0; j < columns; ++j) {
        wanted.weights.push_back(j <= query ? weight(j) * kept(j) : 0);
        wanted.gradient.push_back(
            j <= query ? tile.scale * weight(j) * (kept(j) * given[first + j] - mean) : 0);
      }
    }
  }
  return wanted;
}

TEST(AttentionTile, IsSoftmaxWithDropoutAndItsGradient) {
  for (const ElementType type : wide_types) {
    for (const TileCase& c : tile_cases()) {
      const std::int64_t elements = matrices_of(c.tile) * c.tile.rows * columns_of(c.tile);
      const Array scores = random_array(type, elements, 1, 6.0);
      const Array given = random_array(type, elements, 2);
      const Wanted wanted = wanted_of(c, scores, given);
      const std::string what = describe(c);
      Array log_sums(type, matrices_of(c.tile) * c.tile.sequence, 9.0);
      const auto weigh = [&] {
        Array weights = scores;
        attention_weights(host, type, c.tile, weights.data(), log_sums.data(), c.dropout,
                          c.samples.data());
        return weights;
      };
      const double tolerance = 40 * rounding(type);
      expect_near(weigh(), wanted.weights, tolerance, 0, "weights " + what);
      expect_near(log_sums, wanted.log_sums, tolerance, tolerance, "sums " + what);
      expect_thread_independent(weigh);
      Array weights_again(type, elements);
      const auto gradient = [&] {
        Array made = given;
        weights_again = scores;
        attention_weights_gradient(host, type, c.tile, weights_again.data(), made.data(),
                                   log_sums.data(), c.dropout, c.samples.data());
        return made;
      };
      expect_near(gradient(), wanted.gradient, tolerance, 4 * tolerance, "gradient " + what);
      // The rounding of the sums, too.
      expect_near(weights_again, wanted.weights, 2 * tolerance, 0, "weights again " + what);
      expect_thread_independent(gradient);
    }
  }
}

TEST(AttentionTile, HasNoFormForBFloat16) {
  Array any(ElementType::BFloat16, 1);
  const AttentionTile tile{1, 1, 0, 1, 0, 1, 1.0};
  EXPECT_THROW(attention_weights(host, any.type(), tile, any.data(), any.data(), {}, nullptr),
               InternalError);
  EXPECT_THROW(attention_weights_gradient(host, any.type(), tile, any.data(), any.data(),
                                          any.data(), {}, nullptr),
               InternalError);
}

}  // namespace

}  // namespace garonne::kernels::test
