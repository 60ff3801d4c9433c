// Dropout and embeddings.
#include "kernels/arrays.hpp"

#include "kernels/dropout.hpp"
#include "kernels/dropout_mask.hpp"
#include "kernels/embedding.hpp"

#include <cmath>

namespace garonne::kernels::test {

namespace {

Dropout some_dropout(double probability) {
  return {philox_key(5, "block.0.dropout"), dropout_threshold(probability), 1 / (1 - probability),
          12};
}

// Samples far apart, one of them above 2^32.
std::vector<std::int64_t> some_samples(std::int64_t batch) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < batch; ++i) samples.push_back((i * 1000003) ^ (i % 2 << 40));
  return samples;
}

}  // namespace

TEST(DropoutAdd, FollowsTheCounters) {
  for (const ElementType type : all_types) {
    for (const std::int64_t per_sample : {1L, 3L, 17L, 257L, 9001L}) {
      for (const double probability : {0.0, 0.1, 0.5}) {
        const std::int64_t batch = 3;
        const Dropout dropout = some_dropout(probability);
        const std::vector<std::int64_t> samples = some_samples(batch);
        const Array x = random_array(type, batch * per_sample, 1);
        const Array residual = random_array(type, batch * per_sample, 2);
        std::vector<double> alone;
        std::vector<double> added;
        for (std::int64_t i = 0; i < batch * per_sample; ++i) {
          const std::int64_t sample = samples[static_cast<std::size_t>(i / per_sample)];
          alone.push_back(x[i] * dropout_factor(dropout, sample, i % per_sample));
          added.push_back(residual[i] + alone.back());
        }
        Array out(type, batch * per_sample);
        dropout_add(host, type, nullptr, x.data(), out.data(), dropout, samples.data(),
                    batch * per_sample, per_sample);
        expect_near(out, alone, 2 * rounding(type), 0, "dropout");
        const auto add = [&] {
          dropout_add(host, type, residual.data(), x.data(), out.data(), dropout, samples.data(),
                      batch * per_sample, per_sample);
          return out;
        };
        expect_near(add(), added, 2 * rounding(type), 8 * rounding(accumulation_type(type)), "add");
        expect_thread_independent(add);
      }
    }
  }
}

TEST(DropoutAdd, DropsItsShare) {
  const std::int64_t n = 1 << 20;
  const Array x(ElementType::Float32, n, 1.0);
  Array out(ElementType::Float32, n);
  const std::int64_t sample = 4;
  for (const double probability : {0.1, 0.5}) {
    dropout_add(host, x.type(), nullptr, x.data(), out.data(), some_dropout(probability), &sample,
                n, n);
    double dropped = 0;
    for (std::int64_t i = 0; i < n; ++i) dropped += out[i] == 0 ? 1 : 0;
    EXPECT_NEAR(dropped / static_cast<double>(n), probability, 0.003);
  }
}

TEST(DropoutAdd, SamplesDoNotDependOnTheBatch) {
  const std::int64_t n = 1003;
  const std::vector<std::int64_t> samples = some_samples(4);
  const Array x = random_array(ElementType::Float32, 4 * n, 1);
  Array whole(x.type(), 4 * n);
  dropout_add(host, x.type(), nullptr, x.data(), whole.data(), some_dropout(0.3), samples.data(),
              4 * n, n);
  for (std::int64_t i = 0; i < 4; ++i) {
    Array one(x.type(), n);
    dropout_add(host, x.type(), nullptr, static_cast<const float*>(x.data()) + i * n, one.data(),
                some_dropout(0.3), samples.data() + i, n, n);
    for (std::int64_t j = 0; j < n; ++j) ASSERT_EQ(one[j], whole[i * n + j]);
  }
}

TEST(Embedding, ForwardAndBackward) {
  const std::int64_t vocabulary = 23;
  for (const ElementType type : all_types) {
    const ElementType sums = accumulation_type(type);
    for (const std::int64_t hidden : {1L, 3L, 17L, 130L, 257L}) {
      for (const double probability : {0.0, 0.25}) {
        const std::int64_t batch = 3;
        const std::int64_t sequence = 37;
        const std::int64_t positions = 41;
        const std::int64_t rows = batch * sequence;
        const Dropout dropout = some_dropout(probability);
        const std::vector<std::int64_t> samples = some_samples(batch);
        std::vector<std::int64_t> tokens;
        for (std::int64_t row = 0; row < rows; ++row)
          tokens.push_back(row * row % (vocabulary - 1));
        const Array token_table = random_array(type, vocabulary * hidden, 1);
        const Array position_table = random_array(type, positions * hidden, 2);
        const Array gradient = random_array(type, rows * hidden, 3);
        std::vector<double> wanted;
        std::vector<double> for_tokens(static_cast<std::size_t>(vocabulary * hidden));
        std::vector<double> for_positions(static_cast<std::size_t>(positions * hidden));
        for (std::int64_t row = 0; row < rows; ++row) {
          const std::int64_t token = tokens[static_cast<std::size_t>(row)];
          const std::int64_t position = row % sequence;
          for (std::int64_t j = 0; j < hidden; ++j) {
            const double mask = dropout_factor(
                dropout, samples[static_cast<std::size_t>(row / sequence)], position * hidden + j);
            wanted.push_back(
                (token_table[token * hidden + j] + position_table[position * hidden + j]) * mask);
            for_tokens[static_cast<std::size_t>(token * hidden + j)] +=
                gradient[row * hidden + j] * mask;
            for_positions[static_cast<std::size_t>(position * hidden + j)] +=
                gradient[row * hidden + j] * mask;
          }
        }
        Array out(type, rows * hidden);
        embedding_forward(host, type, tokens.data(), token_table.data(), position_table.data(),
                          out.data(), dropout, samples.data(), rows, sequence, hidden);
        expect_near(out, wanted, 2 * rounding(type), 8 * rounding(sums), "embedding");
        Array token_gradient(sums, vocabulary * hidden, 9);
        Array position_gradient(sums, positions * hidden, 9);
        const auto backward = [&](bool accumulate, bool with_tokens, bool with_positions) {
          embedding_backward(host, type, gradient.data(), tokens.data(),
                             with_tokens ? token_gradient.data() : nullptr, accumulate,
                             with_positions ? position_gradient.data() : nullptr, accumulate,
                             dropout, samples.data(), rows, sequence, hidden, vocabulary,
                             positions);
        };
        const double tolerance = 200 * rounding(sums);
        backward(false, true, true);
        expect_near(token_gradient, for_tokens, 0, tolerance, "tokens");
        expect_near(position_gradient, for_positions, 0, tolerance, "positions");
        const Array once = token_gradient;
        backward(false, true, false);
        EXPECT_TRUE(token_gradient.same_bits(once));
        backward(true, true, true);
        for (double& value : for_tokens) value *= 2;
        for (double& value : for_positions) value *= 2;
        expect_near(token_gradient, for_tokens, 0, 2 * tolerance, "tokens +=");
        expect_near(position_gradient, for_positions, 0, 2 * tolerance, "positions +=");
        expect_thread_independent([&] {
          backward(false, true, true);
          return token_gradient;
        });
      }
    }
  }
}

}  // namespace garonne::kernels::test
