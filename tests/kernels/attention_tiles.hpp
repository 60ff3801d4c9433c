// Tiles of attention that kernels are tested with: of several samples and heads, whole sequences
// and pieces of them, with and without dropout.
#pragma once

#include "kernels/attention_tile.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace garonne::kernels::test {

struct TileCase {
  AttentionTile tile;
  Dropout dropout;
  std::vector<std::int64_t> samples;
};

inline std::int64_t matrices_of(const AttentionTile& tile) {
  return tile.samples * tile.heads;
}

inline std::int64_t columns_of(const AttentionTile& tile) {
  return tile.first_row + tile.rows;
}

inline std::string describe(const TileCase& c) {
  return std::to_string(c.tile.samples) + " x " + std::to_string(c.tile.heads) + ", rows " +
         std::to_string(c.tile.first_row) + " + " + std::to_string(c.tile.rows) + " of " +
         std::to_string(c.tile.sequence) + (c.dropout.threshold > 0 ? ", dropout" : "");
}

inline std::vector<TileCase> tile_cases() {
  // {samples, heads, first head, rows, first row, sequence, scale}
  const AttentionTile tiles[] = {
      {1, 1, 0, 1, 0, 1, 1.0},       {2, 3, 0, 7, 0, 7, 0.35},       {1, 2, 5, 3, 4, 7, 0.35},
      {2, 2, 1, 33, 0, 40, 0.25},    {1, 3, 2, 2, 128, 130, 0.5},    {1, 1, 7, 128, 0, 130, 0.125},
      {1, 1, 3, 5, 1020, 1027, 0.3}, {1, 2, 90, 4, 2400, 2404, 0.2},
  };
  std::vector<TileCase> cases;
  for (const AttentionTile& tile : tiles) {
    for (const double probability : {0.0, 0.3}) {
      std::vector<std::int64_t> samples;
      for (std::int64_t i = 0; i < tile.samples; ++i) samples.push_back((i + 3) | (i % 2 << 40));
      cases.push_back({tile,
                       {philox_key(5, "layer.0.attention"), dropout_threshold(probability),
                        1 / (1 - probability), 12},
                       samples});
    }
  }
  return cases;
}

}  // namespace garonne::kernels::test
