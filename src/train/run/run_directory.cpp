#include "train/run/run_directory.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "train/checkpoint/checkpoint_keeper.hpp"
#include "train/setup/config_choices.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;

bool may_change(const std::string& key, bool other_tensors) {
  if (other_tensors && (key.rfind("model.", 0) == 0 || key.rfind("optimizer.", 0) == 0))
    return true;
  // Values that are not there may turn up in the midst of a run.
  if (key == "data.missing") return true;
  for (const char* prefix : {"train.steps", "train.stop_after", "grid.", "memory.", "evaluation.",
                             "checkpoint.", "run."}) {
    if (key.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

// A configuration that a run has saved: what is not understood there is damage.
RunConfig saved_config(const std::string& toml, const std::string& path) {
  try {
    return parse_config(toml, path, {}, config_choices());
  } catch (const ConfigError& error) {
    throw IoError(path, fmt::format("is not understood: {}", error.what()));
  }
}

void refuse_changed_keys(const RunConfig& config, const Manifest& manifest,
                         const std::string& checkpoint, bool other_tensors) {
  const RunConfig saved = saved_config(manifest.config, checkpoint + "/manifest.json");
  for (const auto& key : changed_keys(saved, config)) {
    if (may_change(key, other_tensors)) continue;
    std::string before;
    std::string now;
    for (const auto& spec : config_keys()) {
      if (spec.name != key) continue;
      before = spec.get(saved);
      now = spec.get(config);
    }
    throw ConfigError(
        key, now,
        fmt::format("the run in {0} was made with {1}; set it back, or give another run.directory, "
                    "with `--init-from {0}` to begin with its weights",
                    config.run.directory, before));
  }
}

// A lock is there before anything else is.
bool holds_nothing(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error))
    if (entry.path().filename() != "lock") return false;
  return true;
}

}  // namespace

StartingPoint find_starting_point(const RunConfig& config,
                                  const std::function<void(const std::string&)>& note,
                                  bool other_tensors) {
  const std::string& directory = config.run.directory;
  std::error_code error;
  if (config.run.resume == "never") {
    if (fs::exists(directory, error) && !holds_nothing(directory)) {
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
      start.manifest = verify_checkpoint_of_step(directory, steps.back());
    } catch (const IoError& damaged) {
      last_error = damaged.what();
      note(fmt::format("skipping checkpoint {}: {}", steps.back(), last_error));
      steps.pop_back();
      continue;
    }
    start.step = start.manifest.step;
    refuse_changed_keys(config, start.manifest, start.checkpoint, other_tensors);
    return start;
  }
  if (!last_error.empty()) {
    throw IoError(directory, "holds checkpoints and none of them verifies (the last error: " +
                                 last_error + "); move them away to start anew");
  }
  if (has_saved_checkpoints(directory)) {
    throw IoError(
        directory + "/checkpoints",
        "holds no checkpoint, though this run has saved some. Is a disk not mounted? Mount "
        "it or put them back; to start anew, give another run.directory or empty this one");
  }
  return {};
}

void expect_storable(const RunConfig& config) {
  for (const auto& spec : config_keys()) {
    const std::string value = spec.get(config);
    try {
      (void)nlohmann::json(value).dump();
    } catch (const nlohmann::json::exception&) {
      throw ConfigError(spec.name, value,
                        "is no UTF-8, so a checkpoint could not name it; give another name");
    }
  }
}

void prepare_run_directory(const RunConfig& config) {
  std::error_code error;
  fs::create_directories(config.run.directory + "/checkpoints", error);
  if (error) throw IoError(config.run.directory, "cannot be made: " + error.message());
  write_file_durably(config.run.directory + "/config.toml", config_to_toml(config));
}

RunConfig run_directory_config(const std::string& run_directory) {
  const std::string path = run_directory + "/config.toml";
  std::error_code error;
  if (!fs::exists(path, error))
    throw IoError(run_directory, "is no run directory: it has no config.toml");
  return saved_config(read_text_file(path, most_toml_bytes), path);
}

}  // namespace garonne::train
