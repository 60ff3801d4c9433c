#include "nn/fields/field_window.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include "base/error.hpp"
#include "nn/fields/input_noise.hpp"

namespace garonne::nn {
namespace {

// A grid of two axes cut into squares.
struct Patches {
  Patches(const FieldShape& shape, std::int64_t batch_size, std::int64_t side)
      : batch(batch_size), patch(side) {
    expect(shape.points.size() == 2 && shape.points[0] % side == 0 && shape.points[1] % side == 0,
           "patches that do not divide a field of two axes");
    rows = shape.points[0] / side;
    columns = shape.points[1] / side;
  }
  std::int64_t count() const { return batch * rows * columns; }
  std::int64_t points() const { return count() * patch * patch; }

  // [batch · points, channels] or [samples, channels, points] as [batch or samples, rows, columns,
  // channels, patch, patch].
  at::Tensor split(const at::Tensor& field, std::int64_t channels, bool channels_first) const {
    if (channels_first) {
      return field.view({-1, channels, rows, patch, columns, patch}).permute({0, 2, 4, 1, 3, 5});
    }
    return field.view({batch, rows, patch, columns, patch, channels}).permute({0, 1, 3, 5, 2, 4});
  }

  std::int64_t batch;
  std::int64_t patch;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

class WindowPatches : public Node {
 public:
  WindowPatches(const FieldShape& shape, std::int64_t batch, FieldWindow window, std::int64_t patch)
      : patches_(shape, batch, patch),
        members_(shape.members),
        window_(std::move(window)),
        noise_(shape, window_) {
    sources_.resize(window_.values.size());
    for (const auto& part : window_.parts) {
      sources_[static_cast<std::size_t>(part.source)] = part;
      channels_ += part.channels;
    }
  }

  plan::NodeSpec declare(const Declaration& declaration) const override {
    plan::NodeSpec spec;
    spec.kind = "window_patches";
    spec.cost_key =
        fmt::format("window_patches {}x{}x{} patch {} of{}{}", patches_.batch, patches_.rows,
                    patches_.columns, patches_.patch, window_key(window_), noise_.key());
    spec.forward.transient_bytes = spec.forward_keep.transient_bytes =
        noise_.transient_bytes(declaration);
    spec.gradient_aliases.assign(window_.values.size(), false);
    return spec;
  }

  at::Tensor forward(const Context& context, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    const std::int64_t side = patches_.patch;
    at::Tensor out = at::empty({patches_.count(), channels_ * side * side}, inputs[0].options());
    std::int64_t first = 0;
    for (const auto& part : window_.parts) {
      const at::Tensor source = patches_.split(inputs[static_cast<std::size_t>(part.source)],
                                               part.source_channels, part.channels_first);
      const at::Tensor squares = channels_of(out, channels_, first, part.channels);
      const at::Tensor wanted = source.narrow(3, part.first_channel, part.channels);
      // What is loaded is of samples, and all members of one read it.
      const std::int64_t samples = patches_.batch / members_;
      if (part.channels_first) {
        squares.unflatten(0, {samples, members_}).copy_(wanted.unsqueeze(1));
      } else {
        squares.copy_(wanted);
      }
      if (part.channels_first)
        noise_.add(context, part.first_channel, squares.permute({0, 3, 1, 4, 2, 5}));
      first += part.channels;
    }
    return out;
  }

  std::vector<at::Tensor> backward(const Context&, BackwardArguments& arguments) const override {
    std::vector<at::Tensor> gradients(sources_.size());
    for (std::size_t s = 0; s < sources_.size(); ++s) {
      if (!arguments.wanted[s] || !sources_[s].differentiable) continue;
      const std::int64_t channels = sources_[s].source_channels;
      gradients[s] =
          at::empty({patches_.points(), channels}, arguments.output_gradient.options()).zero_();
      const at::Tensor split = patches_.split(gradients[s], channels, /*channels_first=*/false);
      std::int64_t first = 0;
      for (const auto& part : window_.parts) {
        if (static_cast<std::size_t>(part.source) == s) {
          split.narrow(3, part.first_channel, part.channels)
              .copy_(channels_of(arguments.output_gradient, channels_, first, part.channels));
        }
        first += part.channels;
      }
    }
    return gradients;
  }

 private:
  at::Tensor channels_of(const at::Tensor& patches, std::int64_t all, std::int64_t first,
                         std::int64_t count) const {
    return patches
        .view(
            {patches_.batch, patches_.rows, patches_.columns, all, patches_.patch, patches_.patch})
        .narrow(3, first, count);
  }

  Patches patches_;
  std::int64_t members_;
  FieldWindow window_;
  InputNoise noise_;
  std::vector<FieldPart> sources_;  // one part of each
  std::int64_t channels_ = 0;
};

class FieldOfPatches : public Node {
 public:
  FieldOfPatches(const FieldShape& shape, std::int64_t batch, std::int64_t patch,
                 std::int64_t channels)
      : patches_(shape, batch, patch), channels_(channels) {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "field_of_patches";
    spec.cost_key = fmt::format("field_of_patches {}x{}x{} patch {} channels {}", patches_.batch,
                                patches_.rows, patches_.columns, patches_.patch, channels_);
    spec.gradient_aliases = {false};
    return spec;
  }

  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor out = at::empty({patches_.points(), channels_}, inputs[0].options());
    patches_.split(out, channels_, false).copy_(channels_last(inputs[0]));
    return out;
  }

  std::vector<at::Tensor> backward(const Context&, BackwardArguments& arguments) const override {
    const std::int64_t side = patches_.patch;
    at::Tensor gradient =
        at::empty({patches_.count(), side * side * channels_}, arguments.output_gradient.options());
    channels_last(gradient).copy_(patches_.split(arguments.output_gradient, channels_, false));
    return {gradient};
  }

 private:
  // As [batch, rows, columns, channels, patch, patch].
  at::Tensor channels_last(const at::Tensor& patches) const {
    return patches
        .view({patches_.batch, patches_.rows, patches_.columns, patches_.patch, patches_.patch,
               channels_})
        .permute({0, 1, 2, 5, 3, 4});
  }

  Patches patches_;
  std::int64_t channels_;
};

}  // namespace

std::string window_key(const FieldWindow& window) {
  std::string key;
  for (const auto& part : window.parts) {
    key += fmt::format(" {}:{}{}+{}/{}", part.source,
                       part.channels_first   ? "f"
                       : part.differentiable ? "l"
                                             : "d",
                       part.first_channel, part.channels, part.source_channels);
  }
  return key;
}

std::unique_ptr<Node> make_window_patches(const FieldShape& shape, std::int64_t batch,
                                          const FieldWindow& window, std::int64_t patch) {
  return std::make_unique<WindowPatches>(shape, batch, window, patch);
}
std::unique_ptr<Node> make_field_of_patches(const FieldShape& shape, std::int64_t batch,
                                            std::int64_t patch, std::int64_t channels) {
  return std::make_unique<FieldOfPatches>(shape, batch, patch, channels);
}

}  // namespace garonne::nn
