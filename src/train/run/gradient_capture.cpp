#include "train/run/gradient_capture.hpp"

#include <ATen/Functions.h>

#include "base/error.hpp"
#include "nn/element_type.hpp"

namespace garonne::train {

GradientCapture::GradientCapture(const nn::Model& model, Precision precision,
                                 const plan::Program& program, int member) {
  gradients_.precision = precision;
  gradients_.member = member;
  const auto options = at::TensorOptions().dtype(nn::state_scalar_type(precision));
  if (program.zero == 0) {
    for (const auto& spec : model.graph.parameters)
      gradients_.parameters.push_back({at::zeros(spec.shape, options), {}, {}});
    return;
  }
  for (const auto& bucket : program.buckets) {
    exec::ShardState shard;
    shard.bucket = bucket;
    shard.parameter = at::zeros({bucket.shard.elements}, options);
    gradients_.shards.push_back(std::move(shard));
  }
}

void GradientCapture::take(int parameter, const at::Tensor& gradient) {
  if (finished_) return;
  if (gradients_.shards.empty()) {
    gradients_.parameters.at(static_cast<std::size_t>(parameter))
        .parameter.view({-1})
        .copy_(gradient);
    return;
  }
  for (const auto& shard : gradients_.shards) {
    for (const auto& piece : plan::shard_pieces(shard.bucket, gradients_.member)) {
      if (piece.parameter != parameter) continue;
      expect(piece.elements == gradient.numel(), "a gradient of another size than its shard");
      shard.parameter.narrow(0, piece.offset, piece.elements).copy_(gradient);
      return;
    }
  }
  throw InternalError("a gradient of which nothing is in a shard");
}

}  // namespace garonne::train
