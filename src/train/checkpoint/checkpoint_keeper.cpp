#include "train/checkpoint/checkpoint_keeper.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "train/checkpoint/checkpoint.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;

std::string memory_of(const std::string& run_directory) {
  return run_directory + "/checkpoints.json";
}

}  // namespace

bool has_saved_checkpoints(const std::string& run_directory) {
  std::error_code error;
  return fs::exists(memory_of(run_directory), error);
}

void remove_left_over(const std::string& run_directory) {
  std::error_code error;
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(run_directory + "/checkpoints", error)) {
    const std::string name = entry.path().filename().string();
    for (const char* beginning : {".partial-step-", ".removed-step-", ".replaced-step-"}) {
      if (name.starts_with(beginning)) left.push_back(entry.path());
    }
  }
  for (const auto& path : left) fs::remove_all(path, error);
}

CheckpointKeeper::CheckpointKeeper(std::string run_directory,
                                   std::function<void(const std::string&)> warn)
    : run_directory_(std::move(run_directory)), warn_(std::move(warn)) {}

void CheckpointKeeper::remember(std::int64_t step) {
  if (remembered_) return;
  remembered_ = true;
  if (has_saved_checkpoints(run_directory_)) return;
  const nlohmann::ordered_json json = {
      {"format", "garonne.checkpoints"}, {"version", 1}, {"first_step", step}};
  write_file_durably(memory_of(run_directory_), json.dump(1) + "\n");
}

void CheckpointKeeper::started_from(std::int64_t step) {
  whole_.insert(step);
  remember(step);
}

void CheckpointKeeper::saved(std::int64_t step, std::int64_t keep) {
  whole_.insert(step);
  damaged_.erase(step);
  remember(step);
  name_strangers(step);
  std::vector<std::int64_t> older;  // newest first
  for (const std::int64_t other : list_checkpoints(run_directory_))
    if (other < step) older.insert(older.begin(), other);
  std::int64_t kept = 1;
  if (static_cast<std::int64_t>(older.size()) < keep) return;
  for (const std::int64_t other : older) {
    if (kept < keep) {
      if (is_whole(other)) ++kept;
    } else if (!is_copy(other)) {
      remove(other);
    }
  }
}

void CheckpointKeeper::warn_once(const std::string& name, const std::string& why) {
  if (named_.insert(name).second)
    warn_(fmt::format("{}/checkpoints/{} {}; it is left", run_directory_, name, why));
}

void CheckpointKeeper::name_strangers(std::int64_t step) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_directory_ + "/checkpoints", error)) {
    const std::string name = entry.path().filename().string();
    // Hidden ones are being written or removed; file systems have a folder of their own.
    if (name.empty() || name[0] == '.' || name == "lost+found") continue;
    const auto number = checkpoint_step(name);
    if (!number) {
      warn_once(name, "is no checkpoint by its name, step-<number>");
    } else if (*number > step) {
      warn_once(name, fmt::format("is of a later step than {}, which was just saved", step));
    }
  }
}

bool CheckpointKeeper::is_whole(std::int64_t step) {
  if (whole_.contains(step)) return true;
  if (damaged_.contains(step)) return false;
  try {
    verify_checkpoint_of_step(run_directory_, step);
  } catch (const IoError&) {
    damaged_.insert(step);
    is_copy(step);
    return false;
  }
  whole_.insert(step);
  return true;
}

// One whose manifest cannot be read is no copy but damaged.
bool CheckpointKeeper::is_copy(std::int64_t step) {
  if (whole_.contains(step)) return false;
  std::int64_t of = step;
  try {
    of = read_manifest(checkpoint_path(run_directory_, step)).step;
  } catch (const IoError&) {
    return false;
  }
  if (of == step) return false;
  warn_once(fmt::format("step-{}", step),
            fmt::format("is a copy of the checkpoint of step {}", of));
  return true;
}

// Renamed first: a process that is killed meanwhile leaves no half checkpoint under its name.
void CheckpointKeeper::remove(std::int64_t step) {
  whole_.erase(step);
  damaged_.erase(step);
  const std::string path = checkpoint_path(run_directory_, step);
  const std::string away = fmt::format("{}/checkpoints/.removed-step-{}", run_directory_, step);
  std::error_code error;
  fs::remove_all(away, error);
  fs::rename(path, away, error);
  if (!error) fs::remove_all(away, error);
  if (error) {
    warn_once(fmt::format("step-{}", step),
              fmt::format("is old and cannot be removed: {}", error.message()));
  }
}

}  // namespace garonne::train
