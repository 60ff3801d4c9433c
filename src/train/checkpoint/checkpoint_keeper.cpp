#include "train/checkpoint/checkpoint_keeper.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_input.hpp"
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
  nlohmann::ordered_json json = {
      {"format", "garonne.checkpoints"}, {"version", 1}, {"first_step", step}};
  if (const std::int64_t time = time_of(step); time > 0) json["first_saved_at"] = time;
  write_file_durably(memory_of(run_directory_), json.dump(1) + "\n");
}

// A run directory of an earlier version has no time there: it is that of the oldest checkpoint
// that has one, from now on.
void CheckpointKeeper::remember_beginning() {
  const std::string path = memory_of(run_directory_);
  nlohmann::ordered_json json =
      parse_ordered_json(read_text_file(path, most_run_json_bytes), path, FileOwner::Run);
  const nlohmann::json plain = json;
  const JsonFile of_run(plain, path, FileOwner::Run);
  const JsonPlace root = of_run.root();
  root.expect_format("garonne.checkpoints", 1);
  if (root.has("first_saved_at")) {
    began_at_ = root.key("first_saved_at").integer(1);
    return;
  }
  for (const std::int64_t step : list_checkpoints(run_directory_)) {
    began_at_ = time_of(step);
    if (began_at_ > 0) break;
  }
  if (began_at_ == 0) return;
  json["first_saved_at"] = began_at_;
  write_file_durably(path, json.dump(1) + "\n");
}

// By its manifest, which is not looked at again; 0 where there is none.
std::int64_t CheckpointKeeper::time_of(std::int64_t step) {
  const auto found = times_.find(step);
  if (found != times_.end()) return found->second;
  std::int64_t time = 0;
  try {
    const Manifest manifest = read_manifest(checkpoint_path(run_directory_, step));
    if (manifest.step == step) time = manifest.saved_at;
  } catch (const IoError&) {
    time = 0;  // damaged: it does not count
  }
  times_[step] = time;
  return time;
}

std::optional<std::int64_t> CheckpointKeeper::window_of(std::int64_t step, std::int64_t minutes) {
  constexpr std::int64_t seconds = 60;
  const std::int64_t time = time_of(step);
  if (time == 0 || began_at_ == 0) return std::nullopt;
  const std::int64_t width = minutes * seconds;
  const std::int64_t since = time - began_at_;
  return since / width - (since % width < 0 ? 1 : 0);
}

// `older`: checkpoints that are there. Those before it in its window are hashed once where they are
// not known to be whole, since its removal hangs on them.
bool CheckpointKeeper::stays_for_good(std::int64_t step, const std::vector<std::int64_t>& older,
                                      std::int64_t minutes) {
  if (minutes == 0 || damaged_.contains(step)) return false;
  const auto window = window_of(step, minutes);
  if (!window) return false;
  return std::none_of(older.begin(), older.end(), [&](std::int64_t other) {
    return other < step && window_of(other, minutes) == window && is_whole(other);
  });
}

void CheckpointKeeper::started_from(std::int64_t step) {
  whole_.insert(step);
  remember(step);
}

void CheckpointKeeper::saved(std::int64_t step, std::int64_t keep, std::int64_t keep_minutes) {
  whole_.insert(step);
  damaged_.erase(step);
  times_.erase(step);
  remember(step);
  name_strangers(step);
  prune(step, keep, keep_minutes);
}

void CheckpointKeeper::prune(std::int64_t step, std::int64_t keep, std::int64_t keep_minutes) {
  std::vector<std::int64_t> older;  // newest first
  for (const std::int64_t other : list_checkpoints(run_directory_))
    if (other < step) older.insert(older.begin(), other);
  if (keep_minutes > 0 && began_at_ == 0) remember_beginning();
  std::int64_t kept = 1;
  if (static_cast<std::int64_t>(older.size()) < keep) return;
  for (const std::int64_t other : older) {
    if (kept < keep) {
      if (is_whole(other)) ++kept;
    } else if (!is_copy(other) && !stays_for_good(other, older, keep_minutes)) {
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
  times_.erase(step);
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
