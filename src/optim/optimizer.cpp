#include "optim/optimizer.hpp"

#include <map>

#include "base/error.hpp"

namespace garonne::optim {

std::unique_ptr<Optimizer> make_optimizer(const RunConfig& config) {
  static const std::map<std::string, std::unique_ptr<Optimizer> (*)(const RunConfig&)> registry = {
      {"adamw", make_adamw},
  };
  const auto found = registry.find(config.optimizer.name);
  if (found == registry.end())
    throw ConfigError("optimizer.name", config.optimizer.name, "is no known optimizer");
  return found->second(config);
}

}  // namespace garonne::optim
