#include "train/checkpoint/checkpoint_list.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <ctime>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/printable.hpp"
#include "train/checkpoint/manifest.hpp"

namespace garonne::train {
namespace {

std::int64_t time_of(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 ? std::int64_t{found.st_mtime} : 0;
}

// "2026-02-24 21:03:12", of the machine's time zone.
std::string local_time(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  localtime_r(&time, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return text.data();
}

void summarise(CheckpointSummary& summary) {
  try {
    const Manifest manifest = read_manifest(summary.path);
    if (manifest.step != summary.step)
      summary.wrong = fmt::format("is a copy of the checkpoint of step {}", manifest.step);
    if (manifest.saved_at > 0) summary.saved_at = manifest.saved_at;
    summary.files = manifest.files.size();
    summary.tensors = manifest.tensors.size();
    summary.bytes =
        std::accumulate(manifest.file_bytes.begin(), manifest.file_bytes.end(), std::int64_t{0});
  } catch (const IoError& error) {
    summary.wrong = error.what();
  }
}

}  // namespace

std::vector<CheckpointSummary> summarise_checkpoints(const std::string& run_directory) {
  std::vector<CheckpointSummary> summaries;
  for (const std::int64_t step : list_checkpoints(run_directory)) {
    CheckpointSummary& summary = summaries.emplace_back();
    summary.step = step;
    summary.path = checkpoint_path(run_directory, step);
    summary.saved_at = time_of(summary.path + "/manifest.json");
    summarise(summary);
  }
  if (summaries.empty()) throw IoError(run_directory, "is no run directory that has a checkpoint");
  return summaries;
}

std::string to_text(const CheckpointSummary& summary) {
  if (!summary.wrong.empty())
    return fmt::format("step {:>9}  {}", summary.step, printable(summary.wrong));
  return fmt::format("step {:>9}  {:>10}  {:>10}  {}", summary.step,
                     counted(static_cast<std::int64_t>(summary.files), "file"),
                     format_bytes(summary.bytes), local_time(summary.saved_at));
}

nlohmann::ordered_json to_json(const CheckpointSummary& summary) {
  nlohmann::ordered_json row = {
      {"step", summary.step}, {"path", printable(summary.path)}, {"saved_at", summary.saved_at}};
  if (!summary.wrong.empty()) {
    row["wrong"] = printable(summary.wrong);
    return row;
  }
  row.update(nlohmann::ordered_json{
      {"files", summary.files}, {"tensors", summary.tensors}, {"bytes", summary.bytes}});
  return row;
}

VerifiedCheckpoint look_through_checkpoint(const std::string& checkpoint) {
  try {
    return {std::ssize(verify_checkpoint(checkpoint).files), ""};
  } catch (const IoError& damaged) {
    return {0, damaged.what()};
  }
}

}  // namespace garonne::train
