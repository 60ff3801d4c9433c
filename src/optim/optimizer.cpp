#include "optim/optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "optim/schedule.hpp"

namespace garonne::optim {

namespace {

// Of the keys that not all optimizers have, those of which this one says otherwise.
void refuse_other_keys(const RunConfig::Optimizer& given, const OptimizerKind& kind) {
  const RunConfig::Optimizer plain;
  const auto check = [&](const std::string& key, const auto& value, const auto& usual) {
    if (value == usual || std::find(kind.keys.begin(), kind.keys.end(), key) != kind.keys.end())
      return;
    throw ConfigError(
        key, fmt::format("{}", value),
        fmt::format("is nothing that optimizer.name = {} has; leave it out", kind.name));
  };
  check("optimizer.complex", given.complex, plain.complex);
  check("optimizer.beta1", given.beta1, plain.beta1);
  check("optimizer.beta2", given.beta2, plain.beta2);
  check("optimizer.epsilon", given.epsilon, plain.epsilon);
  check("optimizer.trust_coefficient", given.trust_coefficient, plain.trust_coefficient);
  check("optimizer.trust_limit", given.trust_limit, plain.trust_limit);
  check("optimizer.beta2_power", given.beta2_power, plain.beta2_power);
  check("optimizer.square_epsilon", given.square_epsilon, plain.square_epsilon);
  check("optimizer.update_limit", given.update_limit, plain.update_limit);
  check("optimizer.smallest_scale", given.smallest_scale, plain.smallest_scale);
}

}  // namespace

// The maker is in a file of its own; behind it the keys that not all have.
#define GARONNE_OPTIMIZER(name, make, ...)                  \
  std::unique_ptr<Optimizer> make(const RunConfig& config); \
  kinds.push_back({name, make, {__VA_ARGS__}})

const std::vector<OptimizerKind>& optimizer_kinds() {
  static const std::vector<OptimizerKind> registry = [] {
    std::vector<OptimizerKind> kinds;
    GARONNE_OPTIMIZER("adafactor", make_adafactor, "optimizer.beta2_power",
                      "optimizer.square_epsilon", "optimizer.update_limit",
                      "optimizer.smallest_scale");
    GARONNE_OPTIMIZER("adamw", make_adamw, "optimizer.beta1", "optimizer.beta2",
                      "optimizer.epsilon", "optimizer.complex");
    GARONNE_OPTIMIZER("lamb", make_lamb, "optimizer.beta1", "optimizer.beta2", "optimizer.epsilon",
                      "optimizer.trust_limit");
    GARONNE_OPTIMIZER("lars", make_lars, "optimizer.beta1", "optimizer.epsilon",
                      "optimizer.trust_coefficient", "optimizer.trust_limit");
    GARONNE_OPTIMIZER("lion", make_lion, "optimizer.beta1", "optimizer.beta2");
    GARONNE_OPTIMIZER("sgd", make_sgd, "optimizer.beta1");
    return kinds;
  }();
  return registry;
}

#undef GARONNE_OPTIMIZER

double weight_decay_of(const ParameterUpdate& update, double of_run) {
  return update.decays ? update.weight_decay.value_or(of_run) : 0.0;
}

void Optimizer::add_sums(const Queue&, const ParameterUpdate&, std::size_t, std::int64_t, double,
                         const kernels::Scalar&) const {}

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
  refuse_other_keys(config.optimizer, *kind);
  batch_scale(config);  // what it refuses is refused before the first step
  return kind->make(config);
}

}  // namespace garonne::optim
