#include "nn/spectral/spectral_resample.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "nn/element_type.hpp"
#include "nn/node_operations.hpp"
#include "nn/spectral/spectral_transform.hpp"

namespace garonne::nn {
namespace {

// The highest frequency of an even number of points stands for its opposite too, so its imaginary
// part is lost and it is not taken.
Frequencies common_frequencies(const std::vector<std::int64_t>& points,
                               const std::vector<std::int64_t>& new_points) {
  Frequencies common;
  for (std::size_t axis = 0; axis < points.size(); ++axis) {
    const std::int64_t highest = (std::min(points[axis], new_points[axis]) - 1) / 2;
    std::vector<std::int64_t> kept;
    for (std::int64_t k = axis + 1 == points.size() ? 0 : -highest; k <= highest; ++k)
      kept.push_back(k);
    common.push_back(std::move(kept));
  }
  return common;
}

std::int64_t rows_of(std::int64_t batch, const std::vector<std::int64_t>& points) {
  return std::accumulate(points.begin(), points.end(), batch, std::multiplies<>());
}

class SpectralResample : public Node {
 public:
  SpectralResample(std::int64_t batch, std::vector<std::int64_t> points,
                   std::vector<std::int64_t> new_points, std::int64_t channels)
      : batch_(batch),
        channels_(channels),
        axes_(static_cast<int>(points.size())),
        rows_(rows_of(batch, points)),
        new_rows_(rows_of(batch, new_points)),
        before_(points, common_frequencies(points, new_points)),
        after_(new_points, common_frequencies(points, new_points)) {}

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "spectral_resample";
    spec.cost_key = fmt::format("spectral_resample {}x{} {} to {}", batch_, channels_,
                                before_.text(), after_.text());
    spec.gradient_aliases = {false};
    spec.adds_in_place = {true};
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes =
        transients(declaration, rows_, before_, new_rows_, after_, /*in_place=*/false);
    spec.backward.transient_bytes =
        transients(declaration, new_rows_, after_, rows_, before_, /*in_place=*/false);
    spec.in_place_transient_bytes =
        transients(declaration, new_rows_, after_, rows_, before_, /*in_place=*/true);
    const double transforms =
        before_.operations(batch_, channels_) + after_.operations(batch_, channels_);
    set_operations(spec, transforms, transforms);
    // A product an axis each way, and the zeros that the last one is added to.
    set_kernels(spec, 2 * axes_ + 1, 2 * axes_ + 1);
    return spec;
  }

  std::vector<ConstantTable> tables(Precision precision) const override {
    std::vector<ConstantTable> all = before_.tables(precision);
    for (ConstantTable& table : after_.tables(precision)) all.push_back(std::move(table));
    return all;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    return carried(context, inputs[0], before_, new_rows_, after_, /*adjoint=*/false, at::Tensor());
  }

  std::vector<at::Tensor> backward(const Context& context,
                                   BackwardArguments& arguments) const override {
    return {carried(context, arguments.output_gradient.view({new_rows_, channels_}), after_, rows_,
                    before_, /*adjoint=*/true, arguments.add_to[0])};
  }

 private:
  // The spectrum of `from` on the other grid, in a new storage or added to `existing`. The adjoint
  // of a transform and a synthesis is the adjoint synthesis' transform and then the transform's.
  at::Tensor carried(const Context& context, const at::Tensor& from, const SpectralTransform& first,
                     std::int64_t rows, const SpectralTransform& second, bool adjoint,
                     const at::Tensor& existing) const {
    at::Tensor spectrum = first.analyse(context, for_transform(from), adjoint);
    const at::Tensor sum = existing.defined()
                               ? for_transform(existing)
                               : at::empty({rows, channels_}, spectrum.options()).zero_();
    second.synthesise(context, spectrum, sum.view({rows, channels_}), adjoint);
    spectrum.reset();
    if (existing.defined()) {
      const at::Tensor there = existing;
      if (!sum.is_same(there)) there.copy_(sum);
      return there;
    }
    return sum.scalar_type() == from.scalar_type() ? sum : sum.to(from.scalar_type());
  }

  std::int64_t transients(const Declaration& declaration, std::int64_t rows,
                          const SpectralTransform& first, std::int64_t new_rows,
                          const SpectralTransform& second, bool in_place) const {
    AllocationSketch sketch(declaration);
    const std::int64_t element = state_bytes(declaration.precision);
    const bool converts = has_master(declaration.precision);
    const std::int64_t copy = converts ? sketch.make(rows * channels_, element) : 0;
    const std::int64_t spectrum = first.sketch_analyse(sketch, batch_, channels_, element);
    sketch.drop(copy);
    const bool makes = !in_place || converts;
    const std::int64_t sum = makes ? sketch.make(new_rows * channels_, element) : 0;
    second.sketch_synthesise(sketch, batch_, channels_, element);
    sketch.drop(spectrum);
    if (converts && !in_place) sketch.make(new_rows * channels_, declaration.element_bytes());
    if (converts) sketch.drop(sum);
    return sketch.transient_bytes();
  }

  std::int64_t batch_;
  std::int64_t channels_;
  int axes_;
  std::int64_t rows_;
  std::int64_t new_rows_;
  SpectralTransform before_;
  SpectralTransform after_;
};

}  // namespace

std::unique_ptr<Node> make_spectral_resample(std::int64_t batch, std::vector<std::int64_t> points,
                                             std::vector<std::int64_t> new_points,
                                             std::int64_t channels) {
  return std::make_unique<SpectralResample>(batch, std::move(points), std::move(new_points),
                                            channels);
}

}  // namespace garonne::nn
