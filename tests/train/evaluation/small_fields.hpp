// Small files of fields and a small operator at its initialisation, for tests of forecasts.
#pragma once

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "data/hdf5/hdf5.hpp"
#include "nn/compute_session.hpp"
#include "train/checkpoint/trained_model.hpp"
#include "train/scratch.hpp"
#include "train/workload/field_workload.hpp"

namespace garonne::train::test {

inline constexpr std::int64_t rows = 6;
inline constexpr std::int64_t columns = 8;
inline constexpr std::size_t plane = rows * columns;
inline constexpr double day = 86400;
using Shape = std::vector<std::int64_t>;

template <typename T>
void put(data::Hdf5File& file, const std::string& name, const Shape& shape,
         const std::vector<T>& values) {
  auto dataset = file.create_array<T>(name, shape);
  dataset.template write_box<T>(Shape(shape.size(), 0), shape, values);
}

inline std::vector<double> line(double first, double step, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(first + step * static_cast<double>(i));
  return values;
}

// A yearly file: frames [frames, channels, rows, columns], `step` days apart.
inline void write_frames(const std::string& path, const std::vector<std::string>& channels,
                         const std::vector<float>& frames, double first_day = 0, double step = 1) {
  const auto count = static_cast<std::int64_t>(frames.size() / plane / channels.size());
  auto file = data::Hdf5File::create(path);
  put<float>(file, "fields", {count, static_cast<std::int64_t>(channels.size()), rows, columns},
             frames);
  put<double>(file, "timestamp", {count}, line(first_day * day, step * day, count));
  put<double>(file, "lat", {rows}, line(60, -5, rows));
  put<double>(file, "lon", {columns}, line(0, 10, columns));
  file.create_texts("channel", channels);
  file.close();
}

inline std::vector<float> random_frames(std::int64_t values, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(1, 2);
  std::vector<float> frames(static_cast<std::size_t>(values) * plane);
  for (float& value : frames) value = normal(engine);
  return frames;
}

// A small operator at its initialisation.
inline RunConfig small_config(const Scratch& scratch, const std::string& train,
                              const std::string& test) {
  RunConfig config;
  const auto set = [&](const std::string& name, const std::string& value) {
    for (const auto& key : config_keys()) {
      if (key.name == name) key.set(config, value);
    }
  };
  set("model.kind", "fno");
  set("model.layers", "2");
  set("model.hidden", "5");
  set("model.modes", "2,2");
  set("data.path", scratch.path(train));
  set("data.validation", test.empty() ? "" : scratch.path(test));
  set("data.normalisation", "none");
  set("train.loss", "squared-l2");
  set("train.micro_batch", "1");
  set("train.global_batch", "1");
  set("memory.budget", "64 MiB");
  set("run.directory", scratch.path("run"));
  set("run.threads", "1");
  return config;
}

// As open_trained_model makes it at step 0, but for the session of kernels: a process has one.
inline TrainedModel initial_model(const RunConfig& config) {
  TrainedModel trained;
  trained.config = config;
  trained.setup = make_setup(config, FieldWorkload(config).facts(), 1);
  trained.optimizer = optim::make_optimizer(config);
  trained.budget_bytes = config.memory.budget;
  trained.device = std::make_unique<RunDevice>();
  trained.tier = trained.device->make_tier(trained.budget_bytes);
  const exec::DeviceScope scope(*trained.tier);
  trained.state = exec::initial_state(
      trained.device->compute(), trained.setup.model, trained.setup.declaration.precision,
      static_cast<std::uint64_t>(config.train.seed), trained.optimizer->states());
  return trained;
}

}  // namespace garonne::train::test
