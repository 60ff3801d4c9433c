#include "exec/model_state.hpp"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstddef>

#include "base/device.hpp"
#include "base/philox.hpp"
#include "kernels/convert.hpp"
#include "kernels/initialise.hpp"
#include "nn/element_type.hpp"

namespace garonne::exec {
namespace {

// Elements [first, first + elements) of a parameter at step 0.
void fill_initial(const nn::Model& model, int parameter, std::uint64_t seed, std::int64_t first,
                  const at::Tensor& destination) {
  const auto p = static_cast<std::size_t>(parameter);
  const nn::Initialisation& initialisation = model.initialisations[p];
  if (initialisation.deviation <= 0) {
    destination.fill_(initialisation.constant);
    return;
  }
  const nn::Box& box = model.boxes[p];
  const std::int64_t last = first + destination.numel();
  if (box.elements() < last) destination.zero_();
  auto* start = static_cast<std::byte*>(destination.data_ptr());
  const auto bytes = static_cast<std::int64_t>(destination.element_size());
  const std::int64_t end = box.elements();
  const auto fill = [&](std::int64_t in_box, std::int64_t in_global, std::int64_t elements,
                        double factor) {
    kernels::fill_normal(Queue(), nn::element_type_of(destination),
                         start + (in_box - first) * bytes, elements,
                         philox_key(seed, model.graph.parameters[p].name),
                         initialisation.deviation * factor, in_global);
  };
  for (const nn::Run& run : nn::runs_of(box, std::min(first, end), std::min(last, end))) {
    const std::int64_t head =
        std::clamp<std::int64_t>(initialisation.head_elements - run.in_global, 0, run.elements);
    if (head > 0) fill(run.in_box, run.in_global, head, initialisation.head_factor);
    if (head < run.elements) fill(run.in_box + head, run.in_global + head, run.elements - head, 1);
  }
}

ShardState initial_shard(const nn::Model& model, Precision precision, std::uint64_t seed,
                         const plan::Program& program, const plan::Bucket& bucket, int member) {
  const auto stored = at::TensorOptions().dtype(nn::state_scalar_type(precision));
  const auto compute = stored.dtype(nn::compute_scalar_type(precision));
  const plan::BucketShard& layout = bucket.shard;
  ShardState shard;
  shard.bucket = bucket;
  if (program.zero < 3) {
    const std::int64_t ranks = program.shards_of_bucket;
    shard.whole = at::zeros({layout.elements * ranks}, compute);
    shard.parameter = shard.whole.narrow(0, layout.elements * member, layout.elements);
  } else {
    shard.parameter = at::zeros({layout.elements}, compute);
  }
  if (has_master(precision)) shard.master = at::zeros({layout.elements}, stored);
  for (std::size_t k = 0; k < layout.states.size(); ++k)
    shard.states.push_back(at::zeros({layout.elements}, stored));
  for (const auto& piece : plan::shard_pieces(bucket, member)) {
    fill_initial(model, piece.parameter, seed, piece.first,
                 shard.trained().narrow(0, piece.offset, piece.elements));
  }
  return shard;
}

}  // namespace

ModelState initial_state(const nn::Model& model, Precision precision, std::uint64_t seed,
                         int optimizer_states) {
  ModelState state;
  state.precision = precision;
  const auto stored = at::TensorOptions().dtype(nn::state_scalar_type(precision));
  for (std::size_t p = 0; p < model.graph.parameters.size(); ++p) {
    const plan::ParameterSpec& spec = model.graph.parameters[p];
    at::Tensor trained = at::empty(spec.shape, stored);
    fill_initial(model, static_cast<int>(p), seed, 0, trained);
    ParameterState parameter;
    if (has_master(precision)) {
      parameter.master = trained;
      parameter.parameter = at::empty(spec.shape, stored.dtype(nn::compute_scalar_type(precision)));
    } else {
      parameter.parameter = trained;
    }
    for (int k = 0; k < optimizer_states; ++k)
      parameter.states.push_back(at::zeros(spec.shape, stored));
    state.parameters.push_back(std::move(parameter));
  }
  refresh_compute_copies(state);
  return state;
}

ModelState initial_state(const nn::Model& model, Precision precision, std::uint64_t seed,
                         const plan::Program& program, int member) {
  if (program.zero == 0) {
    const auto states = program.parameters.empty() ? 0 : program.parameters[0].states.size();
    return initial_state(model, precision, seed, static_cast<int>(states));
  }
  ModelState state;
  state.precision = precision;
  state.member = member;
  for (const auto& bucket : program.buckets)
    state.shards.push_back(initial_shard(model, precision, seed, program, bucket, member));
  refresh_compute_copies(state);
  return state;
}

void gather_parameters(ModelState& state, dist::Transport* data) {
  if (data == nullptr) return;
  for (auto& shard : state.shards) {
    if (!shard.whole.defined()) continue;
    data->wait(data->all_gather(shard.whole.data_ptr(), shard.whole.numel(),
                                static_cast<std::int64_t>(shard.whole.element_size())));
  }
}

void refresh_compute_copies(ModelState& state) {
  for (auto& shard : state.shards) {
    if (!shard.master.defined()) continue;
    kernels::to_bfloat16(Queue(), shard.master.const_data_ptr<float>(), shard.parameter.data_ptr(),
                         shard.parameter.numel());
  }
  for (auto& parameter : state.parameters) {
    if (!parameter.master.defined()) continue;
    kernels::to_bfloat16(Queue(), parameter.master.const_data_ptr<float>(),
                         parameter.parameter.data_ptr(), parameter.parameter.numel());
  }
}

}  // namespace garonne::exec
