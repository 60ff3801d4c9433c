// What a step of so many seconds comes to: tokens or samples a second, and the share of the
// devices' rate that the model makes use of.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "plan/model/cluster.hpp"
#include "train/setup/planning.hpp"

namespace garonne::train {

// What a step of all ranks does.
struct ModelWork {
  double samples = 0;
  double tokens = 0;        // 0 where the model learns from no tokens
  double operations = 0;    // of the model, as declared_operations() has it; 0 = nobody counted
  double device_flops = 0;  // a second, of one device; 0 = not known
};
// The run's model on one rank, whatever its grid is, for one micro-batch. `device`: as make_setup
// takes it. Throws as make_setup.
Setup undivided_setup(const RunConfig& config, const DataFacts& facts, int threads,
                      const std::optional<plan::DeviceFacts>& device = std::nullopt);

// `undivided`: the model on one rank, with any micro-batch.
ModelWork model_work(const Setup& undivided, std::int64_t global_batch, double device_flops);
// Of the configuration's grid, whatever it is; throws as make_setup.
ModelWork model_work(const RunConfig& config, const DataFacts& facts, int threads,
                     const plan::DeviceFacts& device, double device_flops);

// Floating-point operations a second of one device with the numbers of the setup, as the cluster
// file has them. Throws ConfigError as Cluster::flops.
double device_flops_of(const plan::Cluster& cluster, const Setup& setup);

struct StepRates {
  double items_per_second = 0;       // tokens, else samples
  double operations_per_second = 0;  // of one device
  double utilisation = 0;            // of the device's rate; 0 = not known
};
StepRates rates_of(const ModelWork& work, int ranks, double seconds);
// "tokens/s" or "samples/s".
std::string rate_name(const ModelWork& work);
// For tables: without digits that say nothing.
std::string rate_text(double items_per_second);

// A line for people; empty where nobody counted.
std::string describe_rates(const ModelWork& work, int ranks, double seconds);
// Puts the keys `samples_per_second` to `model_utilisation` there.
void add_rates(const ModelWork& work, int ranks, double seconds, nlohmann::ordered_json& json);

}  // namespace garonne::train
