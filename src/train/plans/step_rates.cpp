#include "train/plans/step_rates.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "train/setup/model_operations.hpp"
#include "train/workload/workload_kind.hpp"

namespace garonne::train {

Setup undivided_setup(const RunConfig& config, const DataFacts& facts, int threads,
                      const std::optional<plan::DeviceFacts>& device) {
  RunConfig undivided = config;
  undivided.grid = RunConfig::GridKeys();
  undivided.train.global_batch = undivided.train.micro_batch;  // one rank need not make them all
  return make_setup(undivided, facts, threads, 0, device);
}

ModelWork model_work(const Setup& undivided, std::int64_t global_batch, double device_flops) {
  const RunConfig& config = undivided.config;
  ModelWork work;
  work.samples = static_cast<double>(global_batch);
  work.tokens = work.samples *
                static_cast<double>(workload_kind(config.model.kind).tokens_per_sample(config));
  work.operations = declared_operations(undivided.model.graph) * work.samples /
                    static_cast<double>(config.train.micro_batch);
  work.device_flops = device_flops;
  return work;
}

ModelWork model_work(const RunConfig& config, const DataFacts& facts, int threads,
                     const plan::DeviceFacts& device, double device_flops) {
  return model_work(undivided_setup(config, facts, threads, device), config.train.global_batch,
                    device_flops);
}

double device_flops_of(const plan::Cluster& cluster, const Setup& setup) {
  return cluster.flops(setup.declaration.precision, setup.declaration.products) /
         cluster.efficiency;
}

StepRates rates_of(const ModelWork& work, int ranks, double seconds) {
  StepRates rates;
  rates.items_per_second = (work.tokens > 0 ? work.tokens : work.samples) / seconds;
  rates.operations_per_second = work.operations / (seconds * ranks);
  if (work.device_flops > 0) rates.utilisation = rates.operations_per_second / work.device_flops;
  return rates;
}

std::string rate_name(const ModelWork& work) {
  return work.tokens > 0 ? "tokens/s" : "samples/s";
}

std::string rate_text(double items_per_second) {
  constexpr double many = 100;
  return items_per_second < many ? fmt::format("{:.3g}", items_per_second)
                                 : fmt::format("{:.0f}", items_per_second);
}

std::string describe_rates(const ModelWork& work, int ranks, double seconds) {
  if (work.operations <= 0) return "";
  const StepRates rates = rates_of(work, ranks, seconds);
  std::string text =
      fmt::format("  {} {} · {:.3g} TFLOP/s a device", rate_text(rates.items_per_second),
                  rate_name(work), rates.operations_per_second / 1e12);
  if (rates.utilisation > 0) {
    text += fmt::format(", {:.1f} % of its {:.3g} (model FLOP utilisation)",
                        100 * rates.utilisation, work.device_flops / 1e12);
  }
  return text + "\n";
}

void add_rates(const ModelWork& work, int ranks, double seconds, nlohmann::ordered_json& json) {
  if (work.operations <= 0) return;
  const StepRates rates = rates_of(work, ranks, seconds);
  json["samples_per_second"] = work.samples / seconds;
  if (work.tokens > 0) json["tokens_per_second"] = rates.items_per_second;
  json["model_operations_per_second"] = rates.operations_per_second;
  if (rates.utilisation > 0) json["model_utilisation"] = rates.utilisation;
}

}  // namespace garonne::train
