// LARS (You, Gitman and Ginsburg, arXiv 1708.03888): SGD with momentum beta1, whose rate is for
// each matrix a share of the norm of the matrix over that of its gradient; the decay of
// optimizer.decay = l2 is part of that gradient, as published. What has one dimension is updated as
// by SGD.
#include "kernels/reduction.hpp"
#include "optim/momentum.hpp"
#include "optim/update_parts.hpp"

namespace garonne::optim {
namespace {

class Lars final : public MomentumOptimizer {
 public:
  explicit Lars(const RunConfig::Optimizer& keys)
      : MomentumOptimizer(keys, kernels::MomentumRule::Lars) {}

  // Squares of the parameter and of its gradient before it is scaled.
  std::vector<TensorSums> sums() const override { return {{.numbers = 2}}; }

  void add_sums(const Queue& queue, const ParameterUpdate& update, std::size_t round, std::int64_t,
                double, const kernels::Scalar&) const override {
    if (!update.matrix) return;
    const auto add = [&](const at::Tensor& values, int number) {
      kernels::add_sum_of_squares(queue, update_type(values), values.const_data_ptr(),
                                  values.numel(), update.sums[round].data_ptr<double>() + number);
    };
    add(update.parameter, 0);
    add(update.gradient, 1);
  }

 protected:
  kernels::Momentum options_of(const ParameterUpdate& update) const override {
    kernels::Momentum options;
    options.squares = adapting_sums(update).place;
    options.trust_coefficient = keys().trust_coefficient;
    options.trust_limit = keys().trust_limit;
    options.epsilon = keys().epsilon;
    return options;
  }
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(const RunConfig& config) {
  return std::make_unique<Lars>(config.optimizer);
}

}  // namespace garonne::optim
