#include "train/run/run_directory.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/file.hpp"
#include "data/tokens/token_samples.hpp"
#include "nn/model_kind.hpp"
#include "train/checkpoint/checkpoint_keeper.hpp"
#include "train/checkpoint/gpu_record.hpp"
#include "train/setup/config_choices.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;

// A configuration that a run has saved: what is not understood there is damage.
RunConfig saved_config(const std::string& toml, const std::string& path) {
  try {
    return parse_config(toml, path, {}, config_choices());
  } catch (const ConfigError& error) {
    throw IoError(path, fmt::format("is not understood: {}", error.what()));
  }
}

// The folder in which the run was started last; empty where it is this one, or nobody knows.
fs::path start_folder(const std::string& run_directory) {
  std::error_code error;
  const std::string path = run_directory + "/" + start_folder_file;
  if (!fs::exists(path, error)) return {};
  std::string folder = read_text_file(path, most_toml_bytes);
  while (!folder.empty() && folder.back() == '\n') folder.pop_back();
  return fs::equivalent(folder, fs::current_path(error), error) ? fs::path() : fs::path(folder);
}

// A path of a run file, as it is or, where it is relative and there, from `folder`.
std::string found_path(const fs::path& folder, const std::string& path) {
  if (path.empty() || fs::path(path).is_absolute()) return path;
  const std::string from_there = (folder / path).string();
  std::error_code error;
  // Of a pattern the folder; Megatron's files may be named without their endings.
  const bool pattern = path.find('*') != std::string::npos;
  const bool there = pattern
                         ? fs::exists(fs::path(from_there).parent_path(), error)
                         : fs::exists(from_there, error) || fs::exists(from_there + ".idx", error);
  return there ? from_there : path;
}

std::string found_blend(const fs::path& folder, const std::string& key, const std::string& text) {
  const std::vector<data::WeightedPath> parts = data::parse_blend(key, text);
  if (parts.size() == 1 && parts[0].path == text) return found_path(folder, text);
  std::string blend;
  for (const data::WeightedPath& part : parts) {
    blend += fmt::format("{}{}*{}", blend.empty() ? "" : ",", part.weight,
                         found_path(folder, part.path));
  }
  return blend;
}

// A lock is there before anything else is.
bool holds_nothing(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error))
    if (entry.path().filename() != "lock") return false;
  return true;
}

}  // namespace

std::vector<KeyChange> changes_since(const StartingPoint& start, const RunConfig& config,
                                     const AllowedChanges& allowed) {
  const RunConfig saved = saved_config(start.manifest.config, start.checkpoint + "/manifest.json");
  return allowed_changes(saved, config, start.step, start.manifest.data, allowed,
                         config.run.directory);
}

StartingPoint newest_whole_checkpoint(const std::string& run_directory,
                                      const std::function<void(const std::string&)>& note,
                                      const std::string& advice) {
  const std::vector<std::int64_t> steps = list_checkpoints(run_directory);
  std::string last_error;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      return {.step = *step,
              .checkpoint = checkpoint_path(run_directory, *step),
              .manifest = verify_checkpoint_of_step(run_directory, *step),
              .changes = {}};
    } catch (const IoError& damaged) {
      last_error = damaged.what();
      note(fmt::format("skipping checkpoint {}: {}", *step, last_error));
    }
  }
  if (steps.empty()) return {};
  throw IoError(run_directory,
                fmt::format("holds checkpoints and none of them verifies (the last error: {}); {}",
                            last_error, advice));
}

StartingPoint find_starting_point(const RunConfig& config,
                                  const std::function<void(const std::string&)>& note,
                                  const AllowedChanges& allowed) {
  expect_changeable(allowed.keys);
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
  StartingPoint start = newest_whole_checkpoint(directory, note, "move them away to start anew");
  if (!start.checkpoint.empty()) {
    start.changes = changes_since(start, config, allowed);
    return start;
  }
  if (has_saved_checkpoints(directory)) {
    throw IoError(
        directory + "/checkpoints",
        "holds no checkpoint, though this run has saved some. Is a disk not mounted? Mount "
        "it or put them back; to start anew, give another run.directory or empty this one");
  }
  return {};
}

std::string saved_optimizer(const StartingPoint& start) {
  return saved_config(start.manifest.config, start.checkpoint + "/manifest.json").optimizer.name;
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
  const fs::path here = fs::current_path(error);
  if (!error)
    write_file_durably(config.run.directory + "/" + start_folder_file, here.string() + "\n");
}

void write_choices(const std::string& run_directory, int threads, const nn::Products& products,
                   const std::optional<device::GpuFacts>& gpu) {
  nlohmann::ordered_json choices = {{"format", "garonne.choices"},
                                    {"version", 1},
                                    {"threads", threads},
                                    {"products", products.to_json()}};
  if (gpu) choices["gpu"] = to_json(*gpu);
  write_file_durably(run_directory + "/choices.json", choices.dump(1) + "\n");
}

RunConfig with_found_data(RunConfig config, const std::string& run_directory) {
  const fs::path folder = start_folder(run_directory);
  if (folder.empty()) return config;
  const bool tokens = nn::model_kind(config.model.kind).learns_from == nn::LearnsFrom::Tokens;
  const auto find = [&](const char* key, std::string& path) {
    path = tokens ? found_blend(folder, key, path) : found_path(folder, path);
  };
  find("data.path", config.data.path);
  find("data.validation", config.data.validation);
  find("data.statistics", config.data.statistics);
  return config;
}

RunConfig run_directory_config(const std::string& run_directory) {
  const std::string path = run_directory + "/config.toml";
  std::error_code error;
  if (!fs::exists(path, error))
    throw IoError(run_directory, "is no run directory: it has no config.toml");
  return saved_config(read_text_file(path, most_toml_bytes), path);
}

}  // namespace garonne::train
