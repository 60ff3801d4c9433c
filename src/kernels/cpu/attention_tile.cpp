#include "kernels/attention_tile.hpp"

#include "base/error.hpp"
#include "kernels/cpu/loops.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/scalar_value.hpp"
#include "kernels/device/attention_tile.hpp"
#include "kernels/dispatch.hpp"

namespace garonne::kernels {

namespace {

using TileLoop = Loop<AttentionTileArguments>;

void run(const Queue& queue, const TileLoop::Function loop,
         const AttentionTileArguments& arguments) {
  expect(loop != nullptr, "weights of attention are Float32 or Float64");
  const AttentionTile& tile = arguments.tile;
  // Exponentials and random numbers: worth more than a few operations.
  const std::int64_t grain = row_grain(8 * (tile.first_row + tile.rows));
  for_ranges(queue, tile.samples * tile.heads * tile.rows, grain, 1,
             [&](std::int64_t begin, std::int64_t end) { loop(arguments, begin, end); });
}

}  // namespace

void attention_weights(const Queue& queue, ElementType type, const AttentionTile& tile,
                       void* scores, void* log_sums, const Dropout& dropout,
                       const std::int64_t* samples) {
  const auto on_device = [&](const auto& place) {
    device::attention_weights(place, type, tile, scores, log_sums, dropout, samples);
  };
  if (put_on_device(queue, on_device)) return;
  run(queue, loops().attention_weights[type],
      {tile, scores, nullptr, log_sums, value_of(dropout), samples});
}

void attention_weights_gradient(const Queue& queue, ElementType type, const AttentionTile& tile,
                                void* scores, void* gradient, const void* log_sums,
                                const Dropout& dropout, const std::int64_t* samples) {
  const auto on_device = [&](const auto& place) {
    device::attention_weights_gradient(place, type, tile, scores, gradient, log_sums, dropout,
                                       samples);
  };
  if (put_on_device(queue, on_device)) return;
  run(queue, loops().attention_weights_gradient[type],
      {tile, scores, gradient, const_cast<void*>(log_sums), value_of(dropout), samples});
}

}  // namespace garonne::kernels
