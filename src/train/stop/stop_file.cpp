#include "train/stop/stop_file.hpp"

#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "base/awake_time.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "train/run/run_lock.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* parting_prefix = ".parting-step-";
constexpr const char* pulse_name = "alive";

std::vector<fs::path> parting_folders(const std::string& run_directory) {
  std::vector<fs::path> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run_directory, error)) {
    if (entry.path().filename().string().rfind(parting_prefix, 0) == 0)
      found.push_back(entry.path());
  }
  return found;
}

void remove_half_written(const std::string& run_directory, bool of_parting) {
  std::error_code error;
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(run_directory + "/checkpoints", error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(".partial-step-", 0) == 0 && name.ends_with(parting_suffix) == of_parting)
      left.push_back(entry.path());
  }
  for (const auto& path : left) fs::remove_all(path, error);
}

// Empty where there is none, or it is being written.
std::string pulse_of(const fs::path& folder) {
  std::error_code error;
  const auto written = fs::last_write_time(folder / pulse_name, error);
  return error ? std::string() : std::to_string(written.time_since_epoch().count());
}

}  // namespace

void ask_to_stop(const std::string& run_directory) {
  const auto found = RunLock::find(run_directory);
  std::error_code error;
  if (!found && !fs::is_directory(run_directory + "/checkpoints", error))
    throw IoError(run_directory, "is no run directory: it has no checkpoints folder");
  if (!found)
    throw IoError(run_directory,
                  "no run works there that could be stopped: it has no file \"lock\"");
  if (found->state == HolderState::Gone) {
    throw IoError(run_directory,
                  fmt::format("no run works there that could be stopped: {} has ended",
                              found->holder.text()));
  }
  write_file_durably(run_directory + "/stop", "stop\n");
}

bool may_be_running(const std::string& run_directory) {
  const auto found = RunLock::find(run_directory);
  return found && found->state != HolderState::Gone;
}

bool is_asked_to_stop(const std::string& run_directory) {
  std::error_code error;
  return fs::exists(run_directory + "/stop", error);
}

void forget_stop_request(const std::string& run_directory) {
  std::error_code error;
  fs::remove(run_directory + "/stop", error);
}

void note_stopped(const std::string& run_directory, std::int64_t step) {
  write_file_durably(run_directory + "/stopped", fmt::format("{}\n", step));
}

std::optional<std::int64_t> stopped_step(const std::string& run_directory) {
  std::error_code error;
  const std::string path = run_directory + "/stopped";
  if (!fs::exists(path, error)) return std::nullopt;
  const std::string text = read_text_file(path);
  std::int64_t step = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (failure != std::errc()) throw IoError(path, "names no step");
  return step;
}

void forget_stopped(const std::string& run_directory) {
  std::error_code error;
  fs::remove(run_directory + "/stopped", error);
}

std::string parting_folder(const std::string& run_directory, std::int64_t step,
                           const std::string& token) {
  return fmt::format("{}/{}{}-{}", run_directory, parting_prefix, step, token);
}

void remove_begun(const std::string& run_directory) {
  remove_half_written(run_directory, false);
}

struct PartingPulse::Beat {
  std::string path;
  std::atomic<bool> ending{false};
  std::thread thread;
};

PartingPulse::PartingPulse(std::string folder) : beat_(std::make_unique<Beat>()) {
  beat_->path = std::move(folder) + "/" + pulse_name;
  beat_->thread = std::thread([beat = beat_.get()] {
    for (int beats = 0; !beat->ending; ++beats) {
      // Twice a second; a look at `ending` more often.
      if (beats % 25 == 0) {
        std::error_code error;
        std::ofstream(beat->path) << beats;
        fs::last_write_time(beat->path, fs::file_time_type::clock::now(), error);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
}

PartingPulse::~PartingPulse() {
  beat_->ending = true;
  beat_->thread.join();
}

std::vector<std::string> await_parting(const std::string& run_directory,
                                       const std::function<void(const std::string&)>& note,
                                       std::chrono::milliseconds patience) {
  std::vector<std::string> lost;
  for (const auto& folder : parting_folders(run_directory)) {
    note(
        fmt::format("the state that this run was stopped in is still being saved; waiting for it "
                    "({})",
                    folder.string()));
    std::string last = pulse_of(folder);
    AwakeTime silent;
    std::error_code error;
    while (fs::exists(folder, error)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (const std::string now = pulse_of(folder); now != last) {
        last = now;
        silent.restart();
      }
      if (silent.passed() <= patience) continue;
      note(fmt::format("{} shows no sign of life; its state is lost", folder.string()));
      lost.push_back(folder.string());
      break;
    }
  }
  return lost;
}

void remove_lost_parting(const std::string& run_directory, const std::vector<std::string>& folders,
                         const std::function<void(const std::string&)>& warn) {
  for (const std::string& folder : folders) {
    std::error_code error;
    fs::remove_all(folder, error);
    if (error)
      warn(fmt::format("{} is left over and cannot be removed: {}", folder, error.message()));
  }
  if (!folders.empty()) remove_half_written(run_directory, true);
}

}  // namespace garonne::train
