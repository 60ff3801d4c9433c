#include "nn/layers/gpu_attention.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "base/bytes.hpp"
#include "nn/tensor_options.hpp"

namespace garonne::nn {
namespace {

enum class Method { Flash, Efficient, Products };

Method method_of(at::ScalarType type, std::int64_t head_size) {
  if (type == at::kBFloat16 && head_size % 8 == 0 && head_size <= 256) return Method::Flash;
  if (type == at::kFloat && head_size % 4 == 0) return Method::Efficient;
  return Method::Products;
}

Method method_of(const AttentionParts& parts) {
  return method_of(parts[0].scalar_type(), parts[0].size(3));
}

// More than any GPU has: bounds shall hold on each, where it is not said which it is.
constexpr std::int64_t most_multiprocessors = 192;

std::int64_t multiprocessors_of(const Declaration& declaration) {
  const int count = declaration.device.multiprocessors;
  return count > 0 ? count : most_multiprocessors;
}

double score_scale(const AttentionParts& parts) {
  return 1 / std::sqrt(static_cast<double>(parts[0].size(3)));
}

// Scores of what comes later are out of the sums.
at::Tensor masked_scores(const AttentionParts& parts) {
  const auto& [query, key, value] = parts;
  at::Tensor scores = at::matmul(query, key.transpose(2, 3)).mul_(score_scale(parts));
  const std::int64_t rows = scores.size(2);
  const at::Tensor later =
      at::ones({rows, rows}, scores.options().dtype(at::kBool)).triu_(/*diagonal=*/1);
  return scores.masked_fill_(later, -std::numeric_limits<double>::infinity());
}

// As the kernels lay their results out.
at::Tensor rows_first(const at::Tensor& by_head) {
  return by_head.transpose(1, 2).contiguous().transpose(1, 2);
}

// Sums of bfloat16 are in float32, as in the other methods.
AttentionParts widened(const AttentionParts& parts) {
  if (parts[0].scalar_type() != at::kBFloat16) return parts;
  return {parts[0].to(at::kFloat), parts[1].to(at::kFloat), parts[2].to(at::kFloat)};
}

Attended by_products(const AttentionParts& given) {
  const AttentionParts parts = widened(given);
  at::Tensor scores = masked_scores(parts);
  at::Tensor log_sums = at::logsumexp(scores, {3});
  scores.sub_(log_sums.unsqueeze(3)).exp_();
  const at::Tensor result = at::matmul(scores, parts[2]).to(given[0].scalar_type());
  return {rows_first(result), std::move(log_sums)};
}

AttentionParts by_products_backward(const AttentionParts& given, const at::Tensor& given_gradient,
                                    const Attended& forward) {
  const AttentionParts parts = widened(given);
  const auto& [query, key, value] = parts;
  const at::ScalarType type = given[0].scalar_type();
  const at::Tensor gradient = given_gradient.to(query.scalar_type());
  const at::Tensor weights = masked_scores(parts).sub_(forward.log_sums.unsqueeze(3)).exp_();
  const at::Tensor of_value = at::matmul(weights.transpose(2, 3), gradient);
  at::Tensor of_scores = at::matmul(gradient, value.transpose(2, 3));
  const at::Tensor result = forward.result.to(query.scalar_type());
  of_scores.sub_(gradient.mul(result).sum({3}, /*keepdim=*/true))
      .mul_(weights)
      .mul_(score_scale(parts));
  const at::Tensor of_query = at::matmul(of_scores, key);
  const at::Tensor of_key = at::matmul(of_scores.transpose(2, 3), query);
  return {of_query.to(type), of_key.to(type), of_value.to(type)};
}

}  // namespace

Attended gpu_attention(const AttentionParts& parts) {
  const auto& [query, key, value] = parts;
  switch (method_of(parts)) {
    case Method::Flash: {
      auto all = at::_scaled_dot_product_flash_attention(query, key, value, /*dropout_p=*/0.0,
                                                         /*is_causal=*/true);
      return {std::get<0>(all), std::get<1>(all)};
    }
    case Method::Efficient: {
      auto all = at::_scaled_dot_product_efficient_attention(
          query, key, value, /*attn_bias=*/{}, /*compute_log_sumexp=*/true, /*dropout_p=*/0.0,
          /*is_causal=*/true);
      return {std::get<0>(all), std::get<1>(all)};
    }
    case Method::Products:
      break;
  }
  return by_products(parts);
}

at::Tensor gpu_attention_to_all(const AttentionParts& given) {
  const AttentionParts parts = widened(given);
  const auto& [query, key, value] = parts;
  const at::Tensor scores = at::matmul(query, key.transpose(2, 3)).mul_(score_scale(parts));
  return at::matmul(at::softmax(scores, /*dim=*/3), value).to(given[0].scalar_type());
}

std::int64_t gpu_attention_to_all_bytes(const Declaration& declaration,
                                        const AttentionToAllSizes& sizes) {
  const std::int64_t state = state_bytes(declaration.precision);
  const auto values = [&](std::int64_t rows, std::int64_t columns) {
    return declaration.allocation(sizes.heads * rows * columns * state);
  };
  const std::int64_t rows = values(sizes.queries, sizes.head_size);
  // Of queries, keys and values there are copies in a wider type, or for a product that wants them
  // one after the other; the sums before they are rounded.
  return 2 * values(sizes.keys, sizes.head_size) + 2 * rows + 2 * values(sizes.queries, sizes.keys);
}

AttentionParts gpu_attention_backward(const AttentionParts& parts, const at::Tensor& gradient,
                                      const Attended& forward) {
  const auto& [query, key, value] = parts;
  switch (method_of(parts)) {
    case Method::Flash: {
      // Nothing is dropped, so whatever stands in the random state means nothing.
      const at::Tensor random = at::zeros({2}, query.options().dtype(at::kUInt64));
      auto [of_query, of_key, of_value] = at::_scaled_dot_product_flash_attention_backward(
          gradient, query, key, value, forward.result, forward.log_sums, /*cum_seq_q=*/{},
          /*cum_seq_k=*/{}, query.size(2), key.size(2), /*dropout_p=*/0.0, /*is_causal=*/true,
          random, random);
      return {of_query, of_key, of_value};
    }
    case Method::Efficient: {
      const at::Tensor random = at::zeros({}, host_tensor_options(at::kLong));
      auto [of_query, of_key, of_value, of_bias] =
          at::_scaled_dot_product_efficient_attention_backward(
              gradient, query, key, value, /*attn_bias=*/{}, forward.result, forward.log_sums,
              random, random, /*dropout_p=*/0.0, {true, true, true, false}, /*is_causal=*/true);
      return {of_query, of_key, of_value};
    }
    case Method::Products:
      break;
  }
  return by_products_backward(parts, gradient, forward);
}

GpuAttentionBytes gpu_attention_bytes(const Declaration& declaration, const AttentionSizes& sizes) {
  const auto [batch, sequence, heads, head_size] = sizes;
  const std::int64_t matrices = batch * heads;
  const std::int64_t state = state_bytes(declaration.precision);
  const std::int64_t small = declaration.allocation(1);  // a random state, or its place
  const auto floats = [&](std::int64_t count) { return declaration.allocation(4 * count); };
  const at::ScalarType type = declaration.precision == Precision::Float32   ? at::kFloat
                              : declaration.precision == Precision::Float64 ? at::kDouble
                                                                            : at::kBFloat16;
  const std::int64_t multiprocessors = multiprocessors_of(declaration);
  GpuAttentionBytes bytes;
  switch (method_of(type, head_size)) {
    case Method::Flash: {
      bytes.log_sums = floats(matrices * sequence);
      bytes.forward = 3 * small;
      // Where there are few rows for the multiprocessors, keys are split and results added.
      // As kernels are compiled for.
      const std::int64_t wide = head_size <= 192 ? round_up(head_size, 32) : 256;
      const std::int64_t columns = head_size <= 64 ? 256 : head_size <= 128 ? 128 : 64;
      const std::int64_t splits =
          std::min<std::int64_t>(128, round_up(sequence, columns) / columns);
      const std::int64_t row_blocks = matrices * (round_up(sequence, 64) / 64);
      if (row_blocks < 2 * multiprocessors && splits > 1) {
        bytes.forward +=
            floats(splits * matrices * sequence) + floats(splits * matrices * sequence * wide);
      }
      // In the order of sums that does not depend on time, each part of the multiprocessors adds up
      // gradients of queries of its own.
      const std::int64_t parts = (multiprocessors + matrices - 1) / matrices;
      const std::int64_t rows = round_up(sequence, 128);
      bytes.backward = floats(parts * matrices * rows * wide) + floats(matrices * rows) + 3 * small;
      break;
    }
    case Method::Efficient: {
      bytes.log_sums = floats(matrices * round_up(sequence, 32));
      bytes.forward = 3 * small;
      // Row sums of gradients times results: the products, then their sums twice, as they come and
      // in the order of the kernel. These stay while the kernel adds up gradients of queries, tile
      // by tile, each with a header of 16 bytes.
      const std::int64_t sums = floats(matrices * sequence);
      constexpr std::int64_t side = 64;
      const std::int64_t tiles =
          matrices * (round_up(sequence, 2 * side) / side) * (round_up(head_size, side) / side);
      bytes.backward = 3 * small + std::max(floats(matrices * sequence * head_size) + 2 * sums,
                                            sums + floats(tiles * (side * side + 4)));
      break;
    }
    case Method::Products: {
      const auto values = [&](std::int64_t count) { return declaration.allocation(state * count); };
      const std::int64_t scores = values(matrices * sequence * sequence);
      const std::int64_t part = values(matrices * sequence * head_size);
      const std::int64_t mask = declaration.allocation(sequence * sequence);
      bytes.log_sums = values(matrices * sequence);
      // Operands of products over batch and heads are copied; wider types are copies, too.
      bytes.forward = 3 * scores + 9 * part + 2 * mask;
      bytes.backward = 4 * scores + 14 * part + 2 * mask;
      break;
    }
  }
  return bytes;
}

}  // namespace garonne::nn
