#include "train/run/metrics_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "train/checkpoint/manifest.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;

// More numbers of lines than these nobody reads.
constexpr std::size_t most_lines_named = 10;

StepMetrics row_from_json(const nlohmann::json& row) {
  StepMetrics metrics;
  metrics.step = row.at("step").get<std::int64_t>();
  metrics.loss = row.at("loss").get<double>();
  metrics.gradient_norm = row.at("gradient_norm").get<double>();
  metrics.learning_rate = row.at("learning_rate").get<double>();
  metrics.seconds = row.at("seconds").get<double>();
  metrics.data_seconds = row.value("data_seconds", 0.0);  // not in rows of earlier versions
  // Rows of before there was another item than tokens.
  metrics.item = row.contains("tokens_per_second") ? token_item : sample_item;
  metrics.samples_per_second = row.value("samples_per_second", 0.0);
  metrics.items_per_second = row.value("tokens_per_second", metrics.samples_per_second);
  metrics.peak_bytes = row.at("peak_bytes").get<std::int64_t>();
  metrics.planned_peak_bytes = row.at("planned_peak_bytes").get<std::int64_t>();
  metrics.time = row.value("time", 0.0);
  metrics.utilisation = row.value("utilisation", 0.0);
  // null where it was not finite.
  if (row.contains("validation_loss") && !row.at("validation_loss").is_null())
    metrics.validation_loss = row.at("validation_loss").get<double>();
  metrics.checkpoint_seconds = row.value("checkpoint_seconds", 0.0);
  metrics.validation_seconds = row.value("validation_seconds", 0.0);
  metrics.between_seconds = row.value("between_seconds", 0.0);
  if (row.contains("start")) {
    const nlohmann::json& start = row.at("start");
    metrics.start = {start.at("ready_seconds").get<double>(),
                     start.at("lost_steps").get<std::int64_t>(),
                     start.at("lost_seconds").get<double>()};
  }
  if (row.contains("slow_ranks")) {
    for (const nlohmann::json& slow : row.at("slow_ranks"))
      metrics.slow_ranks.push_back({slow.at("rank").get<int>(), slow.at("place").get<std::string>(),
                                    slow.at("times").get<double>()});
  }
  return metrics;
}

// Nothing where a line is no whole row.
std::optional<StepMetrics> row_of(const std::string& line) {
  try {
    const auto row = nlohmann::json::parse(line);
    if (!row.is_object() || !row.contains("step") || !row["step"].is_number_integer())
      return std::nullopt;
    const StepMetrics metrics = row_from_json(row);
    return metrics.step >= 1 ? std::optional(metrics) : std::nullopt;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

// Calls `take` with each line, without its end, and whether it had one. The file may be of any
// length: a long run has gigabytes. Throws IoError, also for a line of more bytes than any file of
// ours that is read as a whole.
void for_each_line(const std::string& path,
                   const std::function<void(const std::string& line, bool ended)>& take) {
  constexpr std::int64_t piece_bytes = std::int64_t{1} << 20;
  const FileReader file(path);
  std::string piece;
  std::string line;
  for (std::int64_t at = 0; at < file.size(); at += std::ssize(piece)) {
    piece.resize(static_cast<std::size_t>(std::min(piece_bytes, file.size() - at)));
    file.read(at, piece.data(), piece.size());
    for (std::size_t begin = 0; begin < piece.size();) {
      const std::size_t end = piece.find('\n', begin);
      line.append(piece, begin, end == std::string::npos ? end : end - begin);
      begin = end == std::string::npos ? piece.size() : end + 1;
      if (std::ssize(line) > most_json_bytes)
        throw IoError(path, "is no file of rows: it has a line without an end");
      if (end == std::string::npos) continue;
      take(line, true);
      line.clear();
    }
  }
  if (!line.empty()) take(line, false);
}

// What a metrics file holds for a run that goes on after `last_step`.
struct Sorted {
  std::map<std::int64_t, std::string> rows;  // by step
  std::vector<std::int64_t> damaged;         // numbers of lines, from 1
  std::string damaged_text;
  std::int64_t repeated = 0;
  std::map<std::int64_t, double> later;  // seconds of the steps beyond
  bool as_is = true;                     // the file holds the rows in their order, and no more
};

Sorted sort_lines(const std::string& path, std::int64_t last_step) {
  Sorted sorted;
  std::int64_t number = 0;
  for_each_line(path, [&](const std::string& line, bool ended) {
    ++number;
    const auto row = row_of(line);
    sorted.as_is = sorted.as_is && ended && row && row->step <= last_step &&
                   (sorted.rows.empty() || row->step > sorted.rows.rbegin()->first);
    if (!row) {
      // A last line without its end was being written when the run was killed.
      if (!ended) return;
      sorted.damaged.push_back(number);
      sorted.damaged_text += line + "\n";
    } else if (row->step > last_step) {
      sorted.later[row->step] = row->seconds;
    } else if (!sorted.rows.insert_or_assign(row->step, line).second) {
      ++sorted.repeated;
    }
  });
  return sorted;
}

// Empty where there is none, or only what was imported.
std::string saved_steps_text(const std::string& run_directory) {
  const auto steps = list_checkpoints(run_directory);
  if (steps.empty() || steps.back() == 0) return {};
  return fmt::format(
      "the run has a checkpoint of step {}: the file was removed, or the checkpoint came from "
      "elsewhere (checkpoint import, checkpoint reshard). `garonne checkpoint list {}` says what "
      "there is",
      steps.back(), run_directory);
}

std::string aside(const std::string& path) {
  return path + ".damaged";
}

// Lines of starts so far that were no rows.
std::int64_t lines_aside(const std::string& path) {
  std::ifstream file(aside(path), std::ios::binary);
  return std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n');
}

void put_aside(const std::string& path, const std::string& lines) {
  std::ofstream file(path, std::ios::app | std::ios::binary);
  file << lines;
  if (!file.flush()) throw IoError(path, "cannot be written; is the disk full?");
}

}  // namespace

MetricsFile::MetricsFile(const std::string& run_directory, std::int64_t last_step,
                         const std::function<void(const std::string&)>& warn,
                         std::chrono::milliseconds look_every)
    : path_(run_directory + "/metrics.jsonl"), warn_(warn), look_every_(look_every) {
  std::error_code error;
  const bool is_there = fs::exists(path_, error);
  const Sorted sorted = is_there ? sort_lines(path_, last_step) : Sorted();
  if (!sorted.damaged.empty()) {
    put_aside(aside(path_), sorted.damaged_text);
    const std::size_t named = std::min(sorted.damaged.size(), most_lines_named);
    warn(fmt::format(
        "{}: line{} {}{} {} damaged and moved to metrics.jsonl.damaged; the other rows stay", path_,
        sorted.damaged.size() == 1 ? "" : "s",
        fmt::join(sorted.damaged.begin(),
                  sorted.damaged.begin() + static_cast<std::ptrdiff_t>(named), ", "),
        named < sorted.damaged.size() ? fmt::format(" and {} more", sorted.damaged.size() - named)
                                      : "",
        sorted.damaged.size() == 1 ? "is" : "are"));
  }
  if (sorted.repeated > 0) {
    warn(fmt::format("{}: {} row{} another of the same step behind; the last of each step stays",
                     path_, sorted.repeated, sorted.repeated == 1 ? " has" : "s have"));
  }
  lost_steps_ = static_cast<std::int64_t>(sorted.later.size());
  for (const auto& [step, seconds] : sorted.later) lost_seconds_ += seconds;
  if (last_step == 0 && !sorted.later.empty()) {
    warn(
        fmt::format("the run in {} came to step {} and never saved a checkpoint: it starts again "
                    "from step 1",
                    run_directory, sorted.later.rbegin()->first));
  }
  // Of rows that were damaged the start that found them has said so.
  const std::int64_t missing = last_step - std::ssize(sorted.rows) - lines_aside(path_);
  if (missing > 0) {
    warn(
        fmt::format("{} lacks {} of the steps up to {}, which the checkpoint is of; the run goes "
                    "on without",
                    path_, counted(missing, "row"), last_step));
  }
  if (!sorted.as_is || sorted.rows.empty()) {
    std::string kept;
    for (const auto& [step, line] : sorted.rows) kept += line + "\n";
    write_file_durably(path_, kept);
  }
  file_.open(path_, std::ios::app);
  if (!file_) throw IoError(path_, "cannot be written");
}

void MetricsFile::append(const StepMetrics& metrics) {
  if (const auto now = std::chrono::steady_clock::now(); now - looked_ >= look_every_) {
    looked_ = now;
    std::error_code error;
    // Where the whole folder has gone, its lock says so.
    if (fs::status(path_, error).type() == fs::file_type::not_found &&
        fs::exists(fs::path(path_).parent_path(), error)) {
      warn_(
          fmt::format("{} was removed while the run went on: the rows before step {} are lost, and "
                      "the file is begun anew",
                      path_, metrics.step));
      file_.close();
      file_.open(path_, std::ios::app);
      last_step_ = 0;
    }
  }
  nlohmann::ordered_json row = {{"step", metrics.step},
                                {"loss", metrics.loss},
                                {"gradient_norm", metrics.gradient_norm},
                                {"learning_rate", metrics.learning_rate},
                                {"seconds", metrics.seconds},
                                {"data_seconds", metrics.data_seconds},
                                {"samples_per_second", metrics.samples_per_second},
                                {"peak_bytes", metrics.peak_bytes},
                                {"planned_peak_bytes", metrics.planned_peak_bytes}};
  if (metrics.item == token_item) row["tokens_per_second"] = metrics.items_per_second;
  if (metrics.time > 0) row["time"] = metrics.time;
  if (metrics.utilisation > 0) row["utilisation"] = metrics.utilisation;
  if (metrics.validation_loss) row["validation_loss"] = *metrics.validation_loss;
  if (metrics.checkpoint_seconds > 0) row["checkpoint_seconds"] = metrics.checkpoint_seconds;
  if (metrics.validation_seconds > 0) row["validation_seconds"] = metrics.validation_seconds;
  if (metrics.between_seconds > 0) row["between_seconds"] = metrics.between_seconds;
  if (metrics.start) {
    row["start"] = {{"ready_seconds", metrics.start->ready_seconds},
                    {"lost_steps", metrics.start->lost_steps},
                    {"lost_seconds", metrics.start->lost_seconds}};
  }
  for (const SlowRankMetrics& slow : metrics.slow_ranks)
    row["slow_ranks"].push_back(
        {{"rank", slow.rank}, {"place", slow.place}, {"times", slow.times}});
  std::error_code error;
  if (metrics.step == last_step_)
    fs::resize_file(path_, static_cast<std::uintmax_t>(last_begin_), error);
  const std::string line = row.dump() + "\n";
  file_ << line;
  if (error || !file_.flush()) throw IoError(path_, "cannot be written; is the disk full?");
  last_step_ = metrics.step;
  last_begin_ = static_cast<std::int64_t>(file_.tellp()) - std::ssize(line);
}

std::vector<StepMetrics> read_metrics(const std::string& run_directory) {
  const std::string path = run_directory + "/metrics.jsonl";
  std::error_code error;
  const std::string saved = saved_steps_text(run_directory);
  if (!std::filesystem::exists(path, error)) {
    throw IoError(path, saved.empty() ? "is not there: the run has done no step yet"
                                      : "is not there, though " + saved);
  }
  std::vector<StepMetrics> rows;
  std::int64_t number = 0;
  for_each_line(path, [&](const std::string& line, bool ended) {
    ++number;
    try {
      rows.push_back(row_from_json(nlohmann::json::parse(line)));
    } catch (const nlohmann::json::exception&) {
      if (!ended) return;
      throw IoError(path, fmt::format("line {} is no whole row of a step", number));
    }
  });
  if (rows.empty())
    throw IoError(path, saved.empty() ? "holds no step yet" : "holds no step, though " + saved);
  return rows;
}

}  // namespace garonne::train
