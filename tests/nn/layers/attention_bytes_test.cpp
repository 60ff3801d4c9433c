// What attention of processors takes beside results and gradients, against what is declared.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "base/bytes.hpp"
#include "exec/device_tier.hpp"
#include "nn/compute_session.hpp"
#include "nn/element_type.hpp"
#include "nn/layers/causal_attention.hpp"

namespace garonne::nn {
namespace {

struct Taken {
  std::int64_t forward = 0;   // the sums of the rows included, which are left
  std::int64_t backward = 0;  // beside the three gradients
};

Taken bytes_of(const AttentionSizes& sizes, Precision precision) {
  exec::DeviceTier tier(std::int64_t{1} << 40);
  const exec::DeviceScope scope(tier);
  // As the projection before it leaves them: [batch, sequence, 3, heads, head size].
  const at::Tensor qkv = at::zeros({sizes.batch, sizes.sequence, 3, sizes.heads, sizes.head_size},
                                   compute_scalar_type(precision));
  const auto part = [&](std::int64_t k) { return qkv.select(2, k).transpose(1, 2); };
  const AttentionParts parts = {part(0), part(1), part(2)};
  Taken taken;
  tier.reset_peak();
  const std::int64_t before = tier.live_bytes();
  const Attended attended = causal_attention(Queue(), parts);
  const auto bytes = [&](const at::Tensor& tensor) {
    return round_up(static_cast<std::int64_t>(tensor.storage().nbytes()), tier.granularity());
  };
  taken.forward = tier.peak_bytes() - before - bytes(attended.result);
  const at::Tensor gradient = at::zeros_like(attended.result);
  tier.reset_peak();
  const std::int64_t between = tier.live_bytes();
  const AttentionParts gradients = causal_attention_backward(Queue(), parts, gradient, attended);
  std::int64_t made = 0;
  for (const at::Tensor& one : gradients) made += bytes(one);
  taken.backward = tier.peak_bytes() - between - made;
  return taken;
}

TEST(AttentionBytes, AreWithinWhatIsDeclared) {
  std::mt19937 random(6);
  for (int k = 0; k < 60; ++k) {
    const int threads = 1 + k % 2;
    garonne::test::use_threads(threads);
    AttentionSizes sizes;
    sizes.batch = 1 + random() % 2;
    sizes.heads = 1 + random() % 3;
    sizes.sequence = random() % 2 == 0 ? 1 + random() % 1200 : 64 * (1 + random() % 20);
    sizes.head_size = random() % 2 == 0 ? 1 + random() % 160 : 16 * (1 + random() % 16);
    Declaration declaration;
    declaration.threads = threads;
    for (const Precision precision : {Precision::BFloat16, Precision::Float32}) {
      declaration.precision = precision;
      SCOPED_TRACE(std::string(precision_name(precision)) + " batch " +
                   std::to_string(sizes.batch) + " sequence " + std::to_string(sizes.sequence) +
                   " heads " + std::to_string(sizes.heads) + "x" + std::to_string(sizes.head_size) +
                   " threads " + std::to_string(threads));
      const AttentionBytes declared = attention_bytes(declaration, sizes);
      const Taken taken = bytes_of(sizes, precision);
      EXPECT_LE(taken.forward, declared.forward + declared.log_sums);
      EXPECT_LE(taken.backward, declared.backward);
    }
  }
  garonne::test::use_threads(2);
}

}  // namespace
}  // namespace garonne::nn
