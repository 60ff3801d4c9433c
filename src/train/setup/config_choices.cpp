#include "train/setup/config_choices.hpp"

#include "dist/transport.hpp"
#include "nn/model_kind.hpp"
#include "optim/optimizer.hpp"
#include "optim/schedule.hpp"
#include "plan/offload/memory_ways.hpp"
#include "plan/offload/offload_policy.hpp"
#include "plan/pipeline/schedule_registry.hpp"

namespace garonne::train {
namespace {

template <typename Rows>
std::vector<std::string> names_of(const Rows& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> auto_or(std::vector<std::string> names) {
  names.insert(names.begin(), "auto");
  return names;
}

}  // namespace

Choices config_choices() {
  std::vector<std::string> plans;
  for (const auto& [name, help] : plan::plans_with_offload()) plans.push_back(name);
  // It is what the others come to where there is nobody to talk to.
  std::vector<std::string> transports = dist::transport_names();
  std::erase(transports, "self");
  return {{"model.kind", names_of(nn::model_kinds())},
          {"grid.schedule", names_of(plan::pipeline_schedule_kinds())},
          {"grid.transport", auto_or(transports)},
          {"memory.plan", auto_or(plans)},
          {"memory.allow", auto_or(names_of(plan::memory_ways()))},
          {"train.loss", nn::loss_names()},
          {"optimizer.name", names_of(optim::optimizer_kinds())},
          {"optimizer.schedule", names_of(optim::rate_schedule_kinds())}};
}

}  // namespace garonne::train
