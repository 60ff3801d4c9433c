// The channels of two values side by side.
#include <ATen/Functions.h>
#include <fmt/format.h>

#include "nn/fields/field_layers.hpp"
#include "nn/node_operations.hpp"

namespace garonne::nn {
namespace {

class JoinedChannels : public Node {
 public:
  JoinedChannels(std::int64_t rows, std::int64_t first, std::int64_t second)
      : rows_(rows), channels_{first, second} {}

  plan::NodeSpec declare(const Declaration&) const override {
    plan::NodeSpec spec;
    spec.kind = "joined_channels";
    spec.cost_key = fmt::format("joined_channels {}x({}+{})", rows_, channels_[0], channels_[1]);
    spec.gradient_aliases = {false, false};
    spec.adds_in_place = {true, true};
    set_kernels(spec, 2, 2);
    return spec;
  }

  at::Tensor forward(const Context&, const std::vector<at::Tensor>& inputs,
                     const std::vector<at::Tensor>&, Record*) const override {
    at::Tensor joined = at::empty({rows_, channels_[0] + channels_[1]}, inputs[0].options());
    for (int which : {0, 1}) part(joined, which).copy_(inputs[static_cast<std::size_t>(which)]);
    return joined;
  }

  std::vector<at::Tensor> backward(const Context&, BackwardArguments& arguments) const override {
    const at::Tensor given = arguments.output_gradient.view({rows_, channels_[0] + channels_[1]});
    std::vector<at::Tensor> gradients(2);
    for (int which : {0, 1}) {
      const auto input = static_cast<std::size_t>(which);
      if (!arguments.wanted[input]) continue;
      at::Tensor& gradient = gradients[input];
      gradient = arguments.add_to[input];
      if (gradient.defined()) {
        gradient.view({rows_, channels_[which]}).add_(part(given, which));
      } else {
        gradient = at::empty({rows_, channels_[which]}, given.options());
        gradient.copy_(part(given, which));
      }
    }
    return gradients;
  }

 private:
  at::Tensor part(const at::Tensor& joined, int which) const {
    return joined.narrow(1, which == 0 ? 0 : channels_[0], channels_[which]);
  }

  std::int64_t rows_;
  std::int64_t channels_[2];
};

}  // namespace

std::unique_ptr<Node> make_joined_channels(std::int64_t rows, std::int64_t first,
                                           std::int64_t second) {
  return std::make_unique<JoinedChannels>(rows, first, second);
}

}  // namespace garonne::nn
