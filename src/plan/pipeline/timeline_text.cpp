#include "plan/pipeline/timeline_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace garonne::plan {
namespace {

struct Style {
  char letter;
  const char* meaning;
  // Of the 256 colours: background of chunks 0, 2, … and of chunks 1, 3, …, and the letters on
  // both.
  int even_background;
  int odd_background;
  int letters;
};

constexpr std::array styles = {
    Style{'F', "forward", 25, 67, 231}, Style{'B', "backward", 23, 66, 231},
    Style{'I', "backward of the input", 29, 65, 231},
    Style{'W', "backward of the weights", 172, 179, 16}, Style{'R', "recompute", 97, 139, 231}};

const Style& style_of(PipelineWork work) {
  return styles[static_cast<std::size_t>(work)];
}

constexpr int nothing = -1;

// Which operation of a lane fills most of each cell; `nothing` where it is idle.
std::vector<int> cells_of(const std::vector<TimedOperation>& lane, double makespan, int cells) {
  std::vector<int> result;
  std::size_t first = 0;
  for (int cell = 0; cell < cells; ++cell) {
    const double begin = makespan * cell / cells;
    const double end = makespan * (cell + 1) / cells;
    while (first < lane.size() && lane[first].end <= begin) ++first;
    double idle = end - begin;
    double most = 0;
    int filling = nothing;
    for (std::size_t i = first; i < lane.size() && lane[i].start < end; ++i) {
      const double covered = std::min(end, lane[i].end) - std::max(begin, lane[i].start);
      // Of two that run together the second is shown on the second half.
      const bool together = i > 0 && lane[i].start == lane[i - 1].start &&
                            lane[i].end == lane[i - 1].end && covered > 0;
      if (!together) idle -= covered;
      const bool second_half = together && begin >= (lane[i].start + lane[i].end) / 2;
      if (covered > most || (second_half && covered == most)) {
        most = covered;
        filling = static_cast<int>(i);
      }
    }
    result.push_back(idle > most ? nothing : filling);
  }
  return result;
}

// Odd chunks have small letters; the number of a chunk is only needed from three on.
std::string label(const PipelineOperation& operation, bool many_chunks, std::size_t cells) {
  char letter = style_of(operation.work).letter;
  if (operation.chunk % 2 == 1) letter = static_cast<char>(letter - 'A' + 'a');
  const std::string number = fmt::format("{}{}", letter, operation.micro_batch);
  const std::string chunk = fmt::format("{}.{}", number, operation.chunk);
  if (many_chunks && chunk.size() < cells) return chunk;
  return number.size() <= cells ? number : std::string(1, letter);
}

std::string lane_text(const std::vector<TimedOperation>& lane, const std::vector<int>& cells,
                      bool many_chunks, bool colour) {
  std::string text;
  for (std::size_t i = 0; i < cells.size();) {
    std::size_t end = i;
    while (end < cells.size() && cells[end] == cells[i]) ++end;
    const std::size_t width = end - i;
    if (cells[i] == nothing) {
      for (std::size_t k = 0; k < width; ++k) text += "·";
    } else {
      const PipelineOperation& operation = lane[static_cast<std::size_t>(cells[i])].operation;
      std::string run = label(operation, many_chunks, width);
      run.append(width - run.size(), colour ? ' ' : '-');
      if (colour) {
        const Style& style = style_of(operation.work);
        const int background =
            operation.chunk % 2 == 0 ? style.even_background : style.odd_background;
        text += fmt::format("\x1b[38;5;{};48;5;{}m{}\x1b[0m", style.letters, background, run);
      } else {
        text += run;
      }
    }
    i = end;
  }
  return text;
}

std::string ruler(double makespan, int cells) {
  std::string line(static_cast<std::size_t>(cells), ' ');
  const double step = round_step(makespan / std::max(1.0, cells / 12.0));
  for (int k = 0; k * step <= makespan; ++k) {
    const std::string number = fmt::format("{:g}", k * step);
    const auto at = static_cast<std::size_t>(std::lround(k * step / makespan * cells));
    if (at + number.size() <= line.size()) line.replace(at, number.size(), number);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string legend(const PipelineSchedule& schedule) {
  std::array<bool, styles.size()> used{};
  for (const PipelineOperation& operation : schedule.order.front()) {
    used[static_cast<std::size_t>(operation.work)] = true;
  }
  for (const PipelineOperation& operation : schedule.order.back()) {
    used[static_cast<std::size_t>(operation.work)] = true;
  }
  std::string text;
  for (std::size_t i = 0; i < styles.size(); ++i) {
    if (used[i]) text += fmt::format("{} {}, ", styles[i].letter, styles[i].meaning);
  }
  text += schedule.chunks > 2 ? "number = micro-batch.chunk, " : "number = micro-batch, ";
  if (schedule.chunks > 1) text += "small letter = odd chunk, ";
  text += "· idle";
  return text;
}

}  // namespace

double round_step(double least) {
  const double power = std::pow(10.0, std::floor(std::log10(least)));
  for (const double digit : {1.0, 2.0, 5.0}) {
    if (digit * power >= least * (1 - 1e-9)) return digit * power;
  }
  return 10 * power;
}

std::string timeline_text(const PipelineSchedule& schedule, const PipelineOutcome& outcome,
                          int columns, bool colour) {
  constexpr int most_lanes = 64;
  const std::string longest = fmt::format("device {}", schedule.devices - 1);
  const int margin = static_cast<int>(longest.size()) + 2;
  const int cells = std::max(columns, 40) - margin - 1;
  std::string text;
  for (int device = 0; device < schedule.devices; ++device) {
    if (schedule.devices > most_lanes && device == most_lanes / 2) {
      const int left_out = schedule.devices - most_lanes;
      text += fmt::format("{:<{}}({} more)\n", "", margin, left_out);
      device += left_out;
    }
    const auto& lane = outcome.timeline[static_cast<std::size_t>(device)];
    text += fmt::format(
        "{:<{}} │{}│\n", fmt::format("device {}", device), longest.size(),
        lane_text(lane, cells_of(lane, outcome.makespan, cells), schedule.chunks > 2, colour));
  }
  text += fmt::format("{:<{}}{}\n", "", margin, ruler(outcome.makespan, cells));
  return text + legend(schedule) + "\n";
}

}  // namespace garonne::plan
