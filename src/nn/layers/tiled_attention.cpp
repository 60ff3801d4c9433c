#include "nn/layers/tiled_attention.hpp"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "nn/element_type.hpp"
#include "nn/gemm/product.hpp"

namespace garonne::nn {
namespace {

// Of all members of a group, which are multiplied at once, unless these are very many. More rows
// compute more scores that nobody sees.
constexpr std::int64_t most_rows = 128;
constexpr std::int64_t fewest_rows = 16;
// Scores in a tile. Those of a thread stay in its caches; a GPU wants work for all its
// multiprocessors.
constexpr std::int64_t most_scores_of_threads = std::int64_t{1} << 18;
constexpr std::int64_t most_scores_of_gpus = std::int64_t{1} << 25;

std::int64_t pieces(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

// The first numbers of a range of memory, in this shape.
at::Tensor first_of(const at::Tensor& memory, at::IntArrayRef shape) {
  return memory.narrow(0, 0, c10::multiply_integers(shape)).view(shape);
}

// What goes through at once.
struct Part {
  std::int64_t first_sample;
  std::int64_t samples;
  std::int64_t first_group;
  std::int64_t groups;

  std::int64_t matrices() const { return samples * groups; }
};

class Pass {
 public:
  Pass(const Context& context, const TiledAttentionSizes& sizes, const AttentionMask& mask,
       const at::Tensor& qkv, const at::Tensor& log_sums)
      : context_(context),
        sizes_(sizes),
        tiles_(attention_tiles(sizes, context.queue.device, at::get_num_threads())),
        mask_(mask),
        qkv_(qkv),
        log_sums_(log_sums),
        keys_and_values_(numbers(2 * sizes.sequence * sizes.head_size)),
        scores_(numbers(sizes.members * tiles_.rows * sizes.sequence)),
        rows_(numbers(sizes.members * tiles_.rows * sizes.head_size)) {}

 protected:
  // So many for each group that goes through at once.
  at::Tensor numbers(std::int64_t of_a_group) const {
    return at::empty({tiles_.samples * tiles_.groups * of_a_group},
                     qkv_.options().dtype(log_sums_.scalar_type()));
  }

  template <typename Work>
  void for_parts(const Work& work) const {
    for (std::int64_t sample = 0; sample < sizes_.batch; sample += tiles_.samples) {
      const std::int64_t samples = std::min(tiles_.samples, sizes_.batch - sample);
      for (std::int64_t group = 0; group < sizes_.groups; group += tiles_.groups)
        work(Part{sample, samples, group, std::min(tiles_.groups, sizes_.groups - group)});
    }
  }

  // Of [batch, sequence, groups, heads, head size] what the part has, [samples, groups, heads,
  // sequence, head size].
  static at::Tensor of_part(const at::Tensor& all, const Part& part) {
    return all.narrow(0, part.first_sample, part.samples)
        .narrow(2, part.first_group, part.groups)
        .permute({0, 2, 3, 1, 4});
  }
  at::Tensor queries_of(const at::Tensor& all, const Part& part) const {
    return of_part(all, part).narrow(2, 0, sizes_.members);
  }
  // Keys, then values: [2, samples, groups, sequence, head size].
  at::Tensor keys_and_values_of(const at::Tensor& all, const Part& part) const {
    return of_part(all, part).narrow(2, sizes_.members, 2).permute({2, 0, 1, 3, 4});
  }

  // Copies of what these two give, [matrices, sequence, head size] each.
  std::pair<at::Tensor, at::Tensor> read_keys_and_values(const Part& part) const {
    const at::Tensor given = keys_and_values_of(qkv_, part);
    const at::Tensor copies = first_of(keys_and_values_, given.sizes());
    copies.copy_(given);
    const at::Tensor matrices =
        copies.view({2, part.matrices(), sizes_.sequence, sizes_.head_size});
    return {matrices[0], matrices[1]};
  }

  kernels::AttentionTile tile(const Part& part, std::int64_t first_row) const {
    return {.samples = part.samples,
            .heads = part.groups * sizes_.members,
            .first_head = mask_.first_head + part.first_group * sizes_.members,
            .rows = std::min(tiles_.rows, sizes_.sequence - first_row),
            .first_row = first_row,
            .sequence = sizes_.sequence,
            .scale = 1 / std::sqrt(static_cast<double>(sizes_.head_size))};
  }
  // The tile's rows of all members: of [samples, groups, members, sequence, head size].
  static at::Tensor rows_of(const at::Tensor& all, const kernels::AttentionTile& tile) {
    return all.narrow(3, tile.first_row, tile.rows);
  }
  // A copy of them in `memory`, [matrices, members · rows, head size].
  at::Tensor read_rows(const at::Tensor& memory, const at::Tensor& rows) const {
    const at::Tensor copy = first_of(memory, rows.sizes());
    copy.copy_(rows);
    return as_matrices(copy);
  }
  static at::Tensor as_matrices(const at::Tensor& rows) {
    return rows.view({rows.size(0) * rows.size(1), rows.size(2) * rows.size(3), rows.size(4)});
  }

  const std::int64_t* samples_of(const Part& part) const {
    return mask_.samples == nullptr ? nullptr : mask_.samples + part.first_sample;
  }
  // Kernels take those of all heads of a sample to lie one after the other.
  at::Tensor log_sums_of(const Part& part) const {
    return log_sums_.narrow(0, part.first_sample, part.samples)
        .narrow(1, part.first_group * sizes_.members, part.groups * sizes_.members);
  }

  // Products of the tile's rows and the keys that they see, in `memory`.
  static at::Tensor products(const at::Tensor& memory, const kernels::AttentionTile& tile,
                             const at::Tensor& left, const at::Tensor& right) {
    const std::int64_t columns = tile.first_row + tile.rows;
    at::Tensor made = first_of(memory, {left.size(0), left.size(1), columns});
    at::bmm_out(made, left, right.narrow(1, 0, columns).transpose(1, 2));
    return made;
  }

  // left · the rows of `right` that it has columns for, in the memory of the tile's rows, put into
  // `place`.
  void write_rows(const at::Tensor& place, const at::Tensor& left, const at::Tensor& right) const {
    const at::Tensor made = first_of(rows_, place.sizes());
    at::Tensor matrices = as_matrices(made);
    at::bmm_out(matrices, left, right.narrow(1, 0, left.size(2)));
    place.copy_(made);
  }

  const Context& context_;
  TiledAttentionSizes sizes_;
  AttentionTiles tiles_;
  AttentionMask mask_;
  at::Tensor qkv_;
  at::Tensor log_sums_;
  at::Tensor keys_and_values_;
  at::Tensor scores_;
  at::Tensor rows_;  // of a tile's queries, then of its result or of their gradients
};

class Forward : public Pass {
 public:
  using Pass::Pass;

  void run(const at::Tensor& result) const {
    for_parts([&](const Part& part) {
      const auto [keys, values] = read_keys_and_values(part);
      for (std::int64_t row = 0; row < sizes_.sequence; row += tiles_.rows) {
        const kernels::AttentionTile now = tile(part, row);
        const at::Tensor queries = read_rows(rows_, rows_of(queries_of(qkv_, part), now));
        const at::Tensor weights = products(scores_, now, queries, keys);
        kernels::attention_weights(context_.queue, element_type_of(weights), now,
                                   weights.data_ptr(), log_sums_of(part).data_ptr(), mask_.dropout,
                                   samples_of(part));
        write_rows(rows_of(of_part(result, part), now), weights, values);
      }
    });
  }
};

class Backward : public Pass {
 public:
  Backward(const Context& context, const TiledAttentionSizes& sizes, const AttentionMask& mask,
           const at::Tensor& qkv, const at::Tensor& log_sums)
      : Pass(context, sizes, mask, qkv, log_sums),
        score_gradients_(numbers(sizes.members * tiles_.rows * sizes.sequence)),
        given_(numbers(sizes.members * tiles_.rows * sizes.head_size)),
        totals_(numbers(2 * sizes.sequence * sizes.head_size)) {}

  void run(const at::Tensor& of_result, const at::Tensor& of_qkv) const {
    const std::int64_t last = (pieces(sizes_.sequence, tiles_.rows) - 1) * tiles_.rows;
    for_parts([&](const Part& part) {
      const auto [keys, values] = read_keys_and_values(part);
      const at::Tensor place = keys_and_values_of(of_qkv, part);
      const at::Tensor totals = first_of(totals_, place.sizes());
      const at::Tensor matrices =
          totals.view({2, part.matrices(), sizes_.sequence, sizes_.head_size});
      // The last rows see all keys: what the others add is on top of theirs.
      for (std::int64_t row = last; row >= 0; row -= tiles_.rows) {
        const kernels::AttentionTile now = tile(part, row);
        const at::Tensor queries = read_rows(rows_, rows_of(queries_of(qkv_, part), now));
        const at::Tensor given = read_rows(given_, rows_of(of_part(of_result, part), now));
        const at::Tensor weights = products(scores_, now, queries, keys);
        const at::Tensor of_scores = products(score_gradients_, now, given, values);
        kernels::attention_weights_gradient(
            context_.queue, element_type_of(weights), now, weights.data_ptr(), of_scores.data_ptr(),
            log_sums_of(part).const_data_ptr(), mask_.dropout, samples_of(part));
        add(matrices[0], of_scores, queries);
        add(matrices[1], weights, given);
        write_rows(rows_of(queries_of(of_qkv, part), now), of_scores, keys);
      }
      place.copy_(totals);
    });
  }

 private:
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
  at::Tensor given_;   // gradients of the tile's result
  at::Tensor totals_;  // gradients of keys and values
};

}  // namespace

bool attends_in_tiles(Precision precision, DeviceKind device) {
  return device != DeviceKind::Cuda && precision == Precision::BFloat16 && !multiplies_bfloat16();
}

AttentionTiles attention_tiles(const TiledAttentionSizes& sizes, DeviceKind device, int threads) {
  const std::int64_t most =
      device == DeviceKind::Cuda ? most_scores_of_gpus : threads * most_scores_of_threads;
  AttentionTiles tiles;
  tiles.rows = std::min(sizes.sequence, std::max(fewest_rows, most_rows / sizes.members));
  const std::int64_t groups =
      std::max<std::int64_t>(1, most / (sizes.members * tiles.rows * sizes.sequence));
  tiles.groups = std::min(sizes.groups, groups);
  if (tiles.groups == sizes.groups)
    tiles.samples = std::clamp<std::int64_t>(groups / sizes.groups, 1, sizes.batch);
  return tiles;
}

void tiled_attention(const Context& context, const TiledAttentionSizes& sizes,
                     const AttentionMask& mask, const at::Tensor& qkv, const at::Tensor& result,
                     const at::Tensor& log_sums) {
  Forward(context, sizes, mask, qkv, log_sums).run(result);
}

void tiled_attention_backward(const Context& context, const TiledAttentionSizes& sizes,
                              const AttentionMask& mask, const at::Tensor& qkv,
                              const at::Tensor& log_sums, const at::Tensor& of_result,
                              const at::Tensor& of_qkv) {
  Backward(context, sizes, mask, qkv, log_sums).run(of_result, of_qkv);
}

TiledAttentionBytes tiled_attention_bytes(const Declaration& declaration,
                                          const TiledAttentionSizes& sizes) {
  const AttentionTiles tiles = attention_tiles(sizes, declaration.device.kind, declaration.threads);
  const std::int64_t state = state_bytes(declaration.precision);
  const auto numbers = [&](std::int64_t of_a_group) {
    return declaration.allocation(tiles.samples * tiles.groups * of_a_group * state);
  };
  const std::int64_t keys_and_values = numbers(2 * sizes.sequence * sizes.head_size);
  const std::int64_t scores = numbers(sizes.members * tiles.rows * sizes.sequence);
  const std::int64_t rows = numbers(sizes.members * tiles.rows * sizes.head_size);
  TiledAttentionBytes bytes;
  bytes.log_sums = declaration.allocation(sizes.batch * sizes.heads() * sizes.sequence * state);
  bytes.forward = keys_and_values + scores + rows;
  bytes.backward = 2 * bytes.forward;
  return bytes;
}

TiledAttentionKernels tiled_attention_kernels(const Declaration& declaration,
                                              const TiledAttentionSizes& sizes) {
  const AttentionTiles tiles = attention_tiles(sizes, declaration.device.kind, declaration.threads);
  const auto parts =
      static_cast<int>(pieces(sizes.batch, tiles.samples) * pieces(sizes.groups, tiles.groups));
  const auto rows = static_cast<int>(pieces(sizes.sequence, tiles.rows));
  // Two products forward and five backward, the kernel between them, and copies.
  return {parts * (1 + rows * 5), parts * (2 + rows * 9)};
}

}  // namespace garonne::nn
