#include "optim/optimizer.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace garonne::optim {

// The maker is in a file of its own.
#define GARONNE_OPTIMIZER(name, make)                       \
  std::unique_ptr<Optimizer> make(const RunConfig& config); \
  kinds.push_back({name, make})

const std::vector<OptimizerKind>& optimizer_kinds() {
  static const std::vector<OptimizerKind> registry = [] {
    std::vector<OptimizerKind> kinds;
    GARONNE_OPTIMIZER("adamw", make_adamw);
    GARONNE_OPTIMIZER("lion", make_lion);
    GARONNE_OPTIMIZER("sgd", make_sgd);
    return kinds;
  }();
  return registry;
}

#undef GARONNE_OPTIMIZER

std::vector<double> Optimizer::rates(std::int64_t, double) const {
  return {};
}

std::unique_ptr<Optimizer> make_optimizer(const RunConfig& config,
                                          const std::vector<OptimizerKind>& kinds) {
  const auto kind = std::find_if(kinds.begin(), kinds.end(), [&](const OptimizerKind& row) {
    return row.name == config.optimizer.name;
  });
  if (kind == kinds.end())
    throw ConfigError("optimizer.name", config.optimizer.name, "is no known optimizer");
  return kind->make(config);
}

}  // namespace garonne::optim
