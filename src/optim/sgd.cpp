// Stochastic gradient descent with momentum beta1, as PyTorch's without dampening.
#include "optim/momentum.hpp"

namespace garonne::optim {

std::unique_ptr<Optimizer> make_sgd(const RunConfig& config) {
  return std::make_unique<MomentumOptimizer>(config.optimizer, kernels::MomentumRule::Sgd);
}

}  // namespace garonne::optim
