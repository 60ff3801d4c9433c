#include "train/plans/saved_programs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/file.hpp"
#include "base/json_input.hpp"
#include "base/json_output.hpp"
#include "base/output_file.hpp"
#include "base/whole_number.hpp"
#include "plan/program/live_bytes.hpp"
#include "plan/program/proofs.hpp"
#include "plan/program/rank_sums_check.hpp"
#include "plan/program/replay.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view before_rank = "rank_";
constexpr std::string_view after_rank = ".json";

std::optional<int> rank_of_file(const std::string& name) {
  if (!name.starts_with(before_rank) || !name.ends_with(after_rank)) return std::nullopt;
  const auto digits = std::string_view(name).substr(
      before_rank.size(), name.size() - before_rank.size() - after_rank.size());
  const auto rank = whole_number(digits);
  if (!rank || !std::in_range<int>(*rank)) return std::nullopt;
  return static_cast<int>(*rank);
}

[[noreturn]] void refuse_folder(const std::string& path, const std::string& reason) {
  throw ConfigError("folder", path, reason);
}

// The ranks that all channels together name; 1 where nobody is met.
int ranks_of(const SavedPrograms& saved) {
  int ranks = 1;
  for (const auto& program : saved.programs) {
    ranks = std::max(ranks, program.rank + 1);
    for (const auto& instruction : program.instructions) {
      if (!instruction.channel) continue;
      for (const int member : instruction.channel->members) ranks = std::max(ranks, member + 1);
    }
  }
  return ranks;
}

// As large as the places of the ranks and the groups that they meet say.
GridShape shape_of(const SavedPrograms& saved) {
  GridShape shape;
  const auto at_least = [](int& size, std::size_t members) {
    size = std::max(size, static_cast<int>(members));
  };
  for (const auto& program : saved.programs) {
    const Coordinates& place = program.coordinates;
    at_least(shape.data, static_cast<std::size_t>(place.data) + 1);
    at_least(shape.pipeline, static_cast<std::size_t>(place.pipeline) + 1);
    at_least(shape.tensor, static_cast<std::size_t>(place.tensor) + 1);
    for (const auto& instruction : program.instructions) {
      if (!instruction.channel) continue;
      const plan::GroupAxis group = instruction.channel->group;
      const std::size_t members = instruction.channel->members.size();
      if (group == plan::GroupAxis::Data) at_least(shape.data, members);
      if (group == plan::GroupAxis::Pipeline) at_least(shape.pipeline, members);
      if (group == plan::GroupAxis::Tensor) at_least(shape.tensor, members);
    }
  }
  return shape;
}

// Whether they are ranks 0, 1, 2 and so on.
bool are_all(const SavedPrograms& saved, int ranks) {
  if (static_cast<int>(saved.programs.size()) != ranks) return false;
  for (int rank = 0; rank < ranks; ++rank) {
    if (saved.programs[static_cast<std::size_t>(rank)].rank != rank) return false;
  }
  return true;
}

bool are_stages(const SavedPrograms& saved) {
  for (std::size_t stage = 0; stage < saved.programs.size(); ++stage) {
    const Coordinates& place = saved.programs[stage].coordinates;
    if (place.data != 0 || place.tensor != 0 || place.pipeline != static_cast<int>(stage))
      return false;
  }
  return true;
}

}  // namespace

std::string program_file(const std::string& folder, int rank) {
  return fmt::format("{}/{}{}{}", folder, before_rank, rank, after_rank);
}

void save_program(const std::string& folder, const plan::Program& program,
                  const std::vector<int>& ranks,
                  const std::vector<plan::Measurement>& measurements) {
  std::error_code error;
  fs::create_directories(folder, error);
  write_file_durably(program_file(folder, ranks.at(0)),
                     json_text(plan::to_json(program, ranks, measurements), 1) + "\n");
}

plan::Program read_program(const std::string& path) {
  return plan::program_from_json(parse_json(read_text_file(path, most_run_json_bytes), path,
                                            FileOwner::User, most_program_values),
                                 path);
}

void expect_program_folder(const std::string& option, const std::string& folder) {
  std::error_code error;
  if (folder.empty() || !fs::exists(folder, error)) return;
  if (!fs::is_directory(folder, error))
    throw ConfigError(option, folder, "is a file; give a folder to write Programs into");
  const OutputKind kind = json_output("a Program of Garonne", {"garonne.program"});
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (rank_of_file(entry.path().filename().string()))
      expect_output(option, entry.path().string(), kind);
  }
}

SavedPrograms read_saved_programs(const std::string& folder) {
  std::map<int, std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (const auto rank = rank_of_file(entry.path().filename().string()))
      files[*rank] = entry.path().string();
  }
  if (error) throw IoError(folder, "cannot be read: " + error.message());
  if (files.empty()) throw IoError(folder, "has no rank_<n>.json");
  SavedPrograms saved;
  for (const auto& [rank, path] : files) {
    saved.paths.push_back(path);
    saved.programs.push_back(read_program(path));
  }
  return saved;
}

std::string check_saved_programs(const SavedPrograms& saved) {
  std::string text;
  const int ranks = ranks_of(saved);
  const GridShape shape = shape_of(saved);
  for (std::size_t i = 0; i < saved.programs.size(); ++i) {
    const plan::Program& program = saved.programs[i];
    plan::Prediction prediction;
    try {
      prediction = plan::replay(program);
      plan::prove(program);
      plan::check_budgets(program, prediction);
      plan::check_rank_sums(program, shape);
      plan::check_stated_bytes(program, prediction);
    } catch (const plan::ReplayError& illegal) {
      refuse_folder(saved.paths[i], illegal.what());
    }
    text += fmt::format("rank {:<5} legal · {} instructions · peak {} B ({}) of {}\n", program.rank,
                        program.instructions.size(), prediction.peak_bytes,
                        format_bytes(prediction.peak_bytes), format_bytes(program.budget_bytes()));
  }
  try {
    if (are_all(saved, ranks)) {
      plan::replay_together(saved.programs);
      plan::check_trained_together(saved.programs);
      text += ranks == 1 ? "together  the rank is alone\n"
                         : fmt::format("together  the {} ranks of the grid meet\n", ranks);
    } else if (are_stages(saved)) {
      plan::replay_pipeline(saved.programs);
      const auto stages = static_cast<std::int64_t>(saved.programs.size());
      text += stages == 1
                  ? fmt::format("together  the only stage; {} ranks run it\n", ranks)
                  : fmt::format("together  the {} stages of a pipeline meet; {} ranks run them\n",
                                stages, ranks);
    } else {
      text += "together  not replayed: files of other ranks are missing\n";
    }
  } catch (const plan::ReplayError& illegal) {
    refuse_folder(saved.paths.front(), illegal.what());
  }
  return text;
}

}  // namespace garonne::train
