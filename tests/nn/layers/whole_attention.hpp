// Attention that has the whole matrix in memory and knows nothing of tiles, in double and loop by
// loop, and what tests run beside it.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/philox.hpp"
#include "nn/node.hpp"

namespace garonne::test {

using nn::BackwardArguments;
using nn::Context;
using nn::Node;
using nn::Record;

inline constexpr const char* attention_name = "layer.3.attention";
inline constexpr std::uint64_t attention_seed = 11;
inline constexpr std::uint64_t attention_step = 4;

struct AttentionCase {
  std::int64_t batch;
  std::int64_t sequence;
  std::int64_t heads;
  std::int64_t head_size;
  std::int64_t first_head;
  double probability;
};

// A sample beyond what 32 bits hold is among them.
inline std::vector<std::int64_t> samples_of(const AttentionCase& item) {
  std::vector<std::int64_t> samples;
  for (std::int64_t b = 0; b < item.batch; ++b) samples.push_back((7 + 5 * b) | (b % 2 << 40));
  return samples;
}

inline Context context_of(const std::vector<std::int64_t>& samples, Precision precision) {
  Context context;
  context.precision = precision;
  context.seed = attention_seed;
  context.step = attention_step;
  context.samples = samples.data();
  context.batch = static_cast<std::int64_t>(samples.size());
  return context;
}

struct AttentionPasses {
  at::Tensor result;
  at::Tensor gradient;  // of qkv
};

inline AttentionPasses run_attention(const Node& node, const Context& context,
                                     const at::Tensor& qkv, const at::Tensor& of_result) {
  const at::NoGradGuard no_gradients;
  Record record;
  AttentionPasses passes;
  passes.result = node.forward(context, {qkv}, {}, &record);
  BackwardArguments arguments;
  arguments.inputs = {qkv};
  arguments.output_gradient = of_result;
  arguments.wanted = {true};
  arguments.add_to.resize(1);
  arguments.overwrite.assign(1, false);
  arguments.record = &record;
  passes.gradient = node.backward(context, arguments)[0];
  return passes;
}

// 0, or what a weight is multiplied by.
inline double attention_mask(const AttentionCase& item, std::int64_t sample, std::int64_t head,
                             std::int64_t row, std::int64_t column) {
  const auto element = static_cast<std::uint64_t>(
      ((item.first_head + head) * item.sequence + row) * item.sequence + column);
  const PhiloxBlock block = philox_at(philox_key(attention_seed, attention_name), attention_step,
                                      static_cast<std::uint64_t>(sample), element / 4);
  const bool kept = block.word[element % 4] >= dropout_threshold(item.probability);
  return kept ? 1 / (1 - item.probability) : 0;
}

// The reference, of float64 numbers.
inline AttentionPasses attention_reference(const AttentionCase& item, const at::Tensor& qkv,
                                           const at::Tensor& of_result) {
  const std::int64_t length = item.sequence;
  const std::int64_t size = item.head_size;
  const double scale = 1 / std::sqrt(static_cast<double>(size));
  const std::vector<std::int64_t> samples = samples_of(item);
  AttentionPasses passes{at::zeros_like(of_result), at::zeros_like(qkv)};
  const double* x = qkv.const_data_ptr<double>();
  const double* given = of_result.const_data_ptr<double>();
  auto* out = passes.result.data_ptr<double>();
  auto* gradient = passes.gradient.data_ptr<double>();
  for (std::int64_t b = 0; b < item.batch; ++b) {
    for (std::int64_t h = 0; h < item.heads; ++h) {
      const auto part = [&](std::int64_t which, std::int64_t row) {
        return (((b * length + row) * 3 + which) * item.heads + h) * size;
      };
      const auto place = [&](std::int64_t row) {
        return ((b * length + row) * item.heads + h) * size;
      };
      const auto dot = [&](const double* left, const double* right) {
        double sum = 0;
        for (std::int64_t e = 0; e < size; ++e) sum += left[e] * right[e];
        return sum;
      };
      for (std::int64_t i = 0; i < length; ++i) {
        std::vector<double> weights;
        double total = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          weights.push_back(std::exp(scale * dot(x + part(0, i), x + part(1, j))));
          total += weights.back();
        }
        std::vector<double> factors;
        std::vector<double> of_weights;
        double mean = 0;
        for (std::int64_t j = 0; j <= i; ++j) {
          const auto at = static_cast<std::size_t>(j);
          weights[at] /= total;
          factors.push_back(attention_mask(item, samples[static_cast<std::size_t>(b)], h, i, j));
          of_weights.push_back(factors[at] * dot(given + place(i), x + part(2, j)));
          mean += weights[at] * of_weights[at];
        }
        for (std::int64_t j = 0; j <= i; ++j) {
          const auto at = static_cast<std::size_t>(j);
          const double of_score = scale * weights[at] * (of_weights[at] - mean);
          for (std::int64_t e = 0; e < size; ++e) {
            out[place(i) + e] += weights[at] * factors[at] * x[part(2, j) + e];
            gradient[part(0, i) + e] += of_score * x[part(1, j) + e];
            gradient[part(1, j) + e] += of_score * x[part(0, i) + e];
            gradient[part(2, j) + e] += weights[at] * factors[at] * given[place(i) + e];
          }
        }
      }
    }
  }
  return passes;
}

// Numbers that every precision has.
inline at::Tensor random_numbers(at::IntArrayRef shape, std::uint64_t which) {
  at::manual_seed(which);
  return at::randn(shape, at::TensorOptions().dtype(at::kDouble)).to(at::kBFloat16).to(at::kDouble);
}

inline std::string describe(const AttentionCase& item) {
  return std::to_string(item.batch) + " x " + std::to_string(item.sequence) + " x " +
         std::to_string(item.heads) + " x " + std::to_string(item.head_size);
}

inline double error_of(const at::Tensor& got, const at::Tensor& wanted) {
  return (got.to(at::kDouble) - wanted).norm().item<double>() /
         (wanted.norm().item<double>() + 1e-30);
}

}  // namespace garonne::test
