// Lion (Chen et al., arXiv 2302.06675): steps by the sign of a moment, with half of AdamW's states.
#include "optim/momentum.hpp"

namespace garonne::optim {

std::unique_ptr<Optimizer> make_lion(const RunConfig& config) {
  return std::make_unique<MomentumOptimizer>(config.optimizer, kernels::MomentumRule::Lion);
}

}  // namespace garonne::optim
