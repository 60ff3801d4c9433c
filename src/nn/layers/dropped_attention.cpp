#include "nn/layers/dropped_attention.hpp"

#include <ATen/Functions.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "nn/element_type.hpp"

namespace garonne::nn {
namespace {

constexpr std::int64_t most_rows = 128;
// Scores in a tile. Those of a processor stay in its caches; a GPU wants work for all its
// multiprocessors.
constexpr std::int64_t most_scores_of_processors = std::int64_t{1} << 18;
constexpr std::int64_t most_scores_of_gpus = std::int64_t{1} << 25;

std::int64_t pieces(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

// The first numbers of a range of memory, in this shape.
at::Tensor first_of(const at::Tensor& memory, at::IntArrayRef shape) {
  return memory.narrow(0, 0, c10::multiply_integers(shape)).view(shape);
}

// What goes through at once.
struct Group {
  std::int64_t first_sample;
  std::int64_t samples;
  std::int64_t first_head;
  std::int64_t heads;

  std::int64_t matrices() const { return samples * heads; }
};

class Pass {
 public:
  Pass(const Context& context, const AttentionSizes& sizes, const AttentionMask& mask,
       const at::Tensor& qkv, const at::Tensor& log_sums)
      : context_(context),
        sizes_(sizes),
        tiles_(attention_tiles(sizes, context.queue.device)),
        mask_(mask),
        qkv_(qkv),
        log_sums_(log_sums),
        parts_(numbers(3 * sizes.sequence * sizes.head_size)),
        scores_(numbers(tiles_.rows * sizes.sequence)),
        rows_(numbers(tiles_.rows * sizes.head_size)) {}

 protected:
  // So many for each matrix that goes through at once.
  at::Tensor numbers(std::int64_t of_a_matrix) const {
    return at::empty({tiles_.samples * tiles_.heads * of_a_matrix},
                     qkv_.options().dtype(log_sums_.scalar_type()));
  }

  template <typename Work>
  void for_groups(const Work& work) const {
    for (std::int64_t sample = 0; sample < sizes_.batch; sample += tiles_.samples) {
      const std::int64_t samples = std::min(tiles_.samples, sizes_.batch - sample);
      for (std::int64_t head = 0; head < sizes_.heads; head += tiles_.heads) {
        work(Group{sample, samples, head, std::min(tiles_.heads, sizes_.heads - head)});
      }
    }
  }

  // Of [batch, sequence, …, heads, head size] what the group has.
  static at::Tensor of_group(const at::Tensor& all, const Group& group) {
    return all.narrow(0, group.first_sample, group.samples)
        .narrow(-2, group.first_head, group.heads);
  }
  at::Tensor view_parts(const at::Tensor& all) const {
    return all.view({sizes_.batch, sizes_.sequence, 3, sizes_.heads, sizes_.head_size});
  }
  at::Tensor view_rows(const at::Tensor& all) const {
    return all.view({sizes_.batch, sizes_.sequence, sizes_.heads, sizes_.head_size});
  }

  // Queries, keys and values of the group, [matrices, sequence, head size] each.
  AttentionParts read_parts(const Group& group) const {
    const at::Tensor copies =
        first_of(parts_, {3, group.samples, group.heads, sizes_.sequence, sizes_.head_size});
    copies.copy_(of_group(view_parts(qkv_), group).permute({2, 0, 3, 1, 4}));
    const at::Tensor matrices =
        copies.view({3, group.matrices(), sizes_.sequence, sizes_.head_size});
    return {matrices[0], matrices[1], matrices[2]};
  }

  kernels::AttentionTile tile(const Group& group, std::int64_t first_row) const {
    return {.samples = group.samples,
            .heads = group.heads,
            .first_head = mask_.first_head + group.first_head,
            .rows = std::min(tiles_.rows, sizes_.sequence - first_row),
            .first_row = first_row,
            .sequence = sizes_.sequence,
            .scale = 1 / std::sqrt(static_cast<double>(sizes_.head_size))};
  }
  const std::int64_t* samples_of(const Group& group) const {
    return mask_.samples == nullptr ? nullptr : mask_.samples + group.first_sample;
  }
  at::Tensor log_sums_of(const Group& group) const {
    return log_sums_.narrow(0, group.first_sample, group.samples)
        .narrow(1, group.first_head, group.heads);
  }

  // Products of the tile's queries and the keys that they see, in `memory`.
  static at::Tensor products(const at::Tensor& memory, const kernels::AttentionTile& tile,
                             const at::Tensor& left, const at::Tensor& right) {
    const std::int64_t columns = tile.first_row + tile.rows;
    at::Tensor made = first_of(memory, {left.size(0), tile.rows, columns});
    at::bmm_out(made, left, right.narrow(1, 0, columns).transpose(1, 2));
    return made;
  }

  const Context& context_;
  AttentionSizes sizes_;
  AttentionTiles tiles_;
  AttentionMask mask_;
  at::Tensor qkv_;
  at::Tensor log_sums_;
  at::Tensor parts_;
  at::Tensor scores_;
  at::Tensor rows_;  // of a tile's result, or of its queries' gradients
};

class Forward : public Pass {
 public:
  using Pass::Pass;

  void run(const at::Tensor& result) const {
    for_groups([&](const Group& group) {
      const AttentionParts parts = read_parts(group);
      for (std::int64_t row = 0; row < sizes_.sequence; row += tiles_.rows)
        run(group, parts, tile(group, row), result);
    });
  }

 private:
  void run(const Group& group, const AttentionParts& parts, const kernels::AttentionTile& tile,
           const at::Tensor& result) const {
    const at::Tensor weights =
        products(scores_, tile, parts[0].narrow(1, tile.first_row, tile.rows), parts[1]);
    kernels::attention_weights(context_.queue, element_type_of(weights), tile, weights.data_ptr(),
                               log_sums_of(group).data_ptr(), mask_.dropout, samples_of(group));
    at::Tensor made = first_of(rows_, {group.matrices(), tile.rows, sizes_.head_size});
    at::bmm_out(made, weights, parts[2].narrow(1, 0, weights.size(2)));
    of_group(view_rows(result), group)
        .narrow(1, tile.first_row, tile.rows)
        .copy_(
            made.view({group.samples, group.heads, tile.rows, sizes_.head_size}).transpose(1, 2));
  }
};

class Backward : public Pass {
 public:
  Backward(const Context& context, const AttentionSizes& sizes, const AttentionMask& mask,
           const at::Tensor& qkv, const at::Tensor& log_sums)
      : Pass(context, sizes, mask, qkv, log_sums),
        score_gradients_(numbers(tiles_.rows * sizes.sequence)),
        given_(numbers(tiles_.rows * sizes.head_size)),
        totals_(numbers(2 * sizes.sequence * sizes.head_size)) {}

  void run(const at::Tensor& gradient, const at::Tensor& result) const {
    const std::int64_t last = (pieces(sizes_.sequence, tiles_.rows) - 1) * tiles_.rows;
    for_groups([&](const Group& group) {
      const AttentionParts parts = read_parts(group);
      const at::Tensor totals =
          first_of(totals_, {2, group.matrices(), sizes_.sequence, sizes_.head_size});
      // The last rows see all keys: what the others add is on top of theirs.
      for (std::int64_t row = last; row >= 0; row -= tiles_.rows)
        run(group, parts, tile(group, row), gradient, totals, result);
      of_group(view_parts(result).narrow(2, 1, 2), group)
          .copy_(totals.view({2, group.samples, group.heads, sizes_.sequence, sizes_.head_size})
                     .permute({1, 3, 0, 2, 4}));
    });
  }

 private:
  void run(const Group& group, const AttentionParts& parts, const kernels::AttentionTile& tile,
           const at::Tensor& gradient, const at::Tensor& totals, const at::Tensor& result) const {
    const auto& [queries, keys, values] = parts;
    const std::vector<std::int64_t> by_head = {group.samples, group.heads, tile.rows,
                                               sizes_.head_size};
    const at::Tensor own = queries.narrow(1, tile.first_row, tile.rows);
    at::Tensor given = first_of(given_, by_head);
    given.copy_(
        of_group(view_rows(gradient), group).narrow(1, tile.first_row, tile.rows).transpose(1, 2));
    given = given.view(own.sizes());
    const at::Tensor weights = products(scores_, tile, own, keys);
    const at::Tensor of_scores = products(score_gradients_, tile, given, values);
    kernels::attention_weights_gradient(
        context_.queue, element_type_of(weights), tile, weights.data_ptr(), of_scores.data_ptr(),
        log_sums_of(group).const_data_ptr(), mask_.dropout, samples_of(group));
    add(totals[0], of_scores, own);
    add(totals[1], weights, given);
    at::Tensor made = first_of(rows_, own.sizes());
    at::bmm_out(made, of_scores, keys.narrow(1, 0, of_scores.size(2)));
    of_group(view_parts(result).select(2, 0), group)
        .narrow(1, tile.first_row, tile.rows)
        .copy_(made.view(by_head).transpose(1, 2));
  }

  // The sums over the tile's rows, of the keys that they see.
  void add(at::Tensor total, const at::Tensor& left, const at::Tensor& right) const {
    const std::int64_t columns = left.size(2);
    if (columns == sizes_.sequence) {
      at::bmm_out(total, left.transpose(1, 2), right);
    } else {
      total.narrow(1, 0, columns).baddbmm_(left.transpose(1, 2), right);
    }
  }

  at::Tensor score_gradients_;
  at::Tensor given_;   // of the tile's result
  at::Tensor totals_;  // gradients of keys and values
};

}  // namespace

AttentionTiles attention_tiles(const AttentionSizes& sizes, DeviceKind device) {
  const std::int64_t most =
      device == DeviceKind::Cuda ? most_scores_of_gpus : most_scores_of_processors;
  AttentionTiles tiles;
  tiles.rows = std::min(sizes.sequence, most_rows);
  const std::int64_t matrices = std::max<std::int64_t>(1, most / (tiles.rows * sizes.sequence));
  tiles.heads = std::min(sizes.heads, matrices);
  if (tiles.heads == sizes.heads)
    tiles.samples = std::clamp<std::int64_t>(matrices / sizes.heads, 1, sizes.batch);
  return tiles;
}

at::Tensor dropped_attention(const Context& context, const AttentionSizes& sizes,
                             const AttentionMask& mask, const at::Tensor& qkv,
                             const at::Tensor& log_sums) {
  at::Tensor result = at::empty({qkv.size(0), sizes.heads * sizes.head_size}, qkv.options());
  Forward(context, sizes, mask, qkv, log_sums).run(result);
  return result;
}

at::Tensor dropped_attention_backward(const Context& context, const AttentionSizes& sizes,
                                      const AttentionMask& mask, const at::Tensor& qkv,
                                      const at::Tensor& log_sums, const at::Tensor& gradient) {
  at::Tensor result = at::empty_like(qkv);
  Backward(context, sizes, mask, qkv, log_sums).run(gradient, result);
  return result;
}

DroppedAttentionBytes dropped_attention_bytes(const Declaration& declaration,
                                              const AttentionSizes& sizes) {
  const AttentionTiles tiles = attention_tiles(sizes, declaration.device.kind);
  const std::int64_t state = state_bytes(declaration.precision);
  const auto numbers = [&](std::int64_t of_a_matrix) {
    return declaration.allocation(tiles.samples * tiles.heads * of_a_matrix * state);
  };
  const std::int64_t part = sizes.sequence * sizes.head_size;
  const std::int64_t scores = numbers(tiles.rows * sizes.sequence);
  const std::int64_t rows = numbers(tiles.rows * sizes.head_size);
  DroppedAttentionBytes bytes;
  bytes.log_sums = declaration.allocation(sizes.batch * sizes.heads * sizes.sequence * state);
  bytes.forward = numbers(3 * part) + scores + rows;
  bytes.backward = bytes.forward + scores + rows + numbers(2 * part);
  return bytes;
}

DroppedAttentionKernels dropped_attention_kernels(const AttentionSizes& sizes, DeviceKind device) {
  const AttentionTiles tiles = attention_tiles(sizes, device);
  const auto groups =
      static_cast<int>(pieces(sizes.batch, tiles.samples) * pieces(sizes.heads, tiles.heads));
  const auto rows = static_cast<int>(pieces(sizes.sequence, tiles.rows));
  // Two products forward and five backward, the kernel between them, and copies.
  return {groups * (1 + rows * 4), groups * (2 + rows * 8)};
}

}  // namespace garonne::nn
