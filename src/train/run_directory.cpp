#include "train/run_directory.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.hpp"
#include "base/file.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;

bool may_change(const std::string& key) {
  for (const char* prefix : {"train.steps", "train.stop_after", "grid.", "memory.", "evaluation.",
                             "checkpoint.", "run."}) {
    if (key.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

// A configuration that a run has saved: what is not understood there is damage.
RunConfig saved_config(const std::string& toml, const std::string& path) {
  try {
    return parse_config(toml, path, {});
  } catch (const ConfigError& error) {
    throw IoError(path, fmt::format("is not understood: {}", error.what()));
  }
}

void refuse_changed_keys(const RunConfig& config, const Manifest& manifest,
                         const std::string& checkpoint) {
  const RunConfig saved = saved_config(manifest.config, checkpoint + "/manifest.json");
  for (const auto& key : changed_keys(saved, config)) {
    if (may_change(key)) continue;
    std::string before;
    std::string now;
    for (const auto& spec : config_keys()) {
      if (spec.name != key) continue;
      before = spec.get(saved);
      now = spec.get(config);
    }
    throw ConfigError(
        key, now,
        fmt::format("the run in {} was made with {}; set it back, or give another run.directory",
                    config.run.directory, before));
  }
}

}  // namespace

StartingPoint find_starting_point(const RunConfig& config,
                                  const std::function<void(const std::string&)>& note) {
  const std::string& directory = config.run.directory;
  std::error_code error;
  if (config.run.resume == "never") {
    if (fs::exists(directory, error) && !fs::is_empty(directory, error)) {
      throw ConfigError("run.directory", directory,
                        "is not empty and run.resume = \"never\" wants an empty one; give another, "
                        "or resume = \"auto\"");
    }
    return {};
  }
  auto steps = list_checkpoints(directory);
  std::string last_error;
  while (!steps.empty()) {
    StartingPoint start;
    start.checkpoint = checkpoint_path(directory, steps.back());
    try {
      start.manifest = verify_checkpoint(start.checkpoint);
    } catch (const IoError& damaged) {
      last_error = damaged.what();
      note(fmt::format("skipping checkpoint {}: {}", steps.back(), last_error));
      steps.pop_back();
      continue;
    }
    start.step = start.manifest.step;
    refuse_changed_keys(config, start.manifest, start.checkpoint);
    return start;
  }
  if (!last_error.empty()) {
    throw IoError(directory, "holds checkpoints and none of them verifies (the last error: " +
                                 last_error + "); move them away to start anew");
  }
  return {};
}

void prepare_run_directory(const RunConfig& config) {
  std::error_code error;
  fs::create_directories(config.run.directory + "/checkpoints", error);
  if (error) throw IoError(config.run.directory, "cannot be made: " + error.message());
  write_file_durably(config.run.directory + "/config.toml", config_to_toml(config));
}

MetricsFile::MetricsFile(const std::string& run_directory, std::int64_t last_step)
    : path_(run_directory + "/metrics.jsonl") {
  std::string kept;
  std::ifstream old(path_);
  for (std::string line; std::getline(old, line);) {
    const auto row = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    // A line that is cut short was being written when the run was killed.
    const bool whole = row.is_object() && row.contains("step") && row["step"].is_number_integer();
    if (!whole || row["step"].get<std::int64_t>() > last_step) break;
    kept += line + "\n";
  }
  write_file_durably(path_, kept);
  file_.open(path_, std::ios::app);
  if (!file_) throw IoError(path_, "cannot be written");
}

void MetricsFile::append(const StepMetrics& metrics) {
  nlohmann::ordered_json row = {{"step", metrics.step},
                                {"loss", metrics.loss},
                                {"gradient_norm", metrics.gradient_norm},
                                {"learning_rate", metrics.learning_rate},
                                {"seconds", metrics.seconds},
                                {"samples_per_second", metrics.samples_per_second},
                                {"peak_bytes", metrics.peak_bytes},
                                {"planned_peak_bytes", metrics.planned_peak_bytes}};
  if (metrics.item == token_item) row["tokens_per_second"] = metrics.items_per_second;
  if (metrics.validation_loss) row["validation_loss"] = *metrics.validation_loss;
  file_ << row.dump() << '\n';
  if (!file_.flush()) throw IoError(path_, "cannot be written; is the disk full?");
}

std::vector<StepMetrics> read_metrics(const std::string& run_directory) {
  const std::string path = run_directory + "/metrics.jsonl";
  std::istringstream lines(read_text_file(path, most_metrics_bytes));
  std::vector<StepMetrics> rows;
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const bool cut_short = lines.eof();
    try {
      const auto row = nlohmann::json::parse(line);
      StepMetrics metrics;
      metrics.step = row.at("step").get<std::int64_t>();
      metrics.loss = row.at("loss").get<double>();
      metrics.gradient_norm = row.at("gradient_norm").get<double>();
      metrics.learning_rate = row.at("learning_rate").get<double>();
      metrics.seconds = row.at("seconds").get<double>();
      // Rows of before there was another item than tokens.
      metrics.item = row.contains("tokens_per_second") ? token_item : sample_item;
      metrics.samples_per_second = row.value("samples_per_second", 0.0);
      metrics.items_per_second = row.value("tokens_per_second", metrics.samples_per_second);
      metrics.peak_bytes = row.at("peak_bytes").get<std::int64_t>();
      metrics.planned_peak_bytes = row.at("planned_peak_bytes").get<std::int64_t>();
      if (row.contains("validation_loss"))
        metrics.validation_loss = row.at("validation_loss").get<double>();
      rows.push_back(metrics);
    } catch (const nlohmann::json::exception& error) {
      if (cut_short) break;
      throw IoError(path, fmt::format("line {} is not understood: {}", number, error.what()));
    }
  }
  if (rows.empty()) throw IoError(path, "holds no step yet");
  return rows;
}

RunConfig run_directory_config(const std::string& run_directory) {
  const std::string path = run_directory + "/config.toml";
  std::error_code error;
  if (!fs::exists(path, error))
    throw IoError(run_directory, "is no run directory: it has no config.toml");
  return saved_config(read_text_file(path, most_toml_bytes), path);
}

}  // namespace garonne::train
