#include "plan/pipeline/timeline_svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/counted.hpp"
#include "base/error.hpp"
#include "plan/pipeline/timeline_text.hpp"

namespace garonne::plan {
namespace {

constexpr int most_operations = 100'000;
constexpr double margin = 24;
constexpr double label_width = 76;
constexpr double peak_width = 120;
constexpr double lane_height = 30;
constexpr double lane_distance = 38;
constexpr double letter_width = 6.6;

struct Colour {
  int red;
  int green;
  int blue;
};

constexpr Colour forward_colour = {31, 105, 176};
constexpr Colour input_colour = {18, 116, 90};
constexpr Colour weight_colour = {226, 140, 30};
constexpr Colour recompute_colour = {130, 80, 160};

Colour colour_of(PipelineWork work) {
  switch (work) {
    case PipelineWork::Forward:
      return forward_colour;
    case PipelineWork::BackwardWeight:
      return weight_colour;
    case PipelineWork::Recompute:
      return recompute_colour;
    default:
      return input_colour;
  }
}

// Higher chunks are paler; a block stands out from a white page and from a dark one.
Colour paler(Colour colour, int chunk) {
  const double share = 0.22 * (chunk % 4);
  const auto mix = [share](int channel) {
    return static_cast<int>(channel + share * (255 - channel));
  };
  return {mix(colour.red), mix(colour.green), mix(colour.blue)};
}

std::string hex(Colour colour) {
  return fmt::format("#{:02x}{:02x}{:02x}", colour.red, colour.green, colour.blue);
}

bool wants_dark_text(Colour colour) {
  return 0.299 * colour.red + 0.587 * colour.green + 0.114 * colour.blue > 115;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    if (letter == '&') {
      result += "&amp;";
    } else if (letter == '<') {
      result += "&lt;";
    } else if (letter == '>') {
      result += "&gt;";
    } else {
      result += letter;
    }
  }
  return result;
}

class TimelinePicture {
 public:
  TimelinePicture(const PipelineSchedule& schedule, const PipelineOutcome& outcome)
      : schedule_(schedule), outcome_(outcome) {
    double shortest = std::numeric_limits<double>::infinity();
    for (const auto& lane : outcome.timeline) {
      for (const TimedOperation& timed : lane) {
        if (timed.end > timed.start) shortest = std::min(shortest, timed.end - timed.start);
      }
    }
    // Room for the number of a micro-batch, if the picture stays of a sane width.
    const double wanted = 20 * outcome.makespan / shortest;
    lane_width_ = std::clamp(wanted, 720.0, 6000.0);
    scale_ = lane_width_ / outcome.makespan;
  }

  std::string draw() {
    const double lanes = schedule_.devices * lane_distance;
    const double width = 2 * margin + label_width + lane_width_ + peak_width;
    const double height = top + lanes + 76;
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"system-ui, 'DejaVu Sans', sans-serif\" "
        "font-size=\"12\">\n{2}<rect class=\"page\" width=\"{0:.0f}\" height=\"{1:.0f}\"/>\n",
        width, height, style);
    write(margin, 30, "text title", title());
    write(margin, 50, "quiet", subtitle());
    draw_axis(top + lanes);
    for (int device = 0; device < schedule_.devices; ++device) draw_lane(device);
    draw_legend(top + lanes + 56);
    return svg_ + "</svg>\n";
  }

 private:
  static constexpr double top = 70;
  static constexpr const char* style =
      "<style>\n"
      ".page { fill: #ffffff } .text { fill: #1b212b } .quiet { fill: #5a6472 }\n"
      ".lane { fill: #eef1f5 } .grid { stroke: #cdd4dd } .title { font-size: 16px; font-weight: "
      "600 }\n"
      ".pale { fill: #ffffff } .dark { fill: #14181f } .middle { text-anchor: middle }\n"
      "@media (prefers-color-scheme: dark) {\n"
      "  .page { fill: #101318 } .text { fill: #e7eaef } .quiet { fill: #a0a9b6 }\n"
      "  .lane { fill: #1d222a } .grid { stroke: #3a424e }\n"
      "}\n"
      "</style>\n";

  void write(double x, double y, const char* classes, const std::string& text) {
    svg_ += fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", classes, x, y,
                        escaped(text));
  }
  double left() const { return margin + label_width; }
  double lane_top(int device) const { return top + device * lane_distance; }

  std::string title() const {
    return fmt::format("{}: {}, {}{}", schedule_.name, counted(schedule_.devices, "stage"),
                       counted(schedule_.micro_batches, "micro-batch"),
                       schedule_.chunks > 1 ? fmt::format(", {} chunks a device", schedule_.chunks)
                                            : std::string());
  }
  std::string subtitle() const {
    return fmt::format("makespan {:.6g} s, bubble {:.6g} s ({:.1f} %)", outcome_.makespan,
                       outcome_.bubble, 100 * outcome_.bubble / outcome_.makespan);
  }

  void draw_axis(double bottom) {
    const double step = round_step(90 / scale_);
    for (int k = 0; k * step <= outcome_.makespan * (1 + 1e-9); ++k) {
      const double x = left() + k * step * scale_;
      svg_ += fmt::format(
          "<line class=\"grid\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>\n", x,
          top - 6, bottom);
      write(x, bottom + 14, "quiet middle", fmt::format("{:g}{}", k * step, k == 0 ? " s" : ""));
    }
  }

  void draw_lane(int device) {
    const auto index = static_cast<std::size_t>(device);
    const double y = lane_top(device);
    write(margin, y + 19, "text", fmt::format("device {}", device));
    svg_ += fmt::format(
        "<rect class=\"lane\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\"/>\n",
        left(), y, lane_width_, lane_height);
    const auto& lane = outcome_.timeline[index];
    for (std::size_t i = 0; i < lane.size(); ++i) {
      const auto together = [&](std::size_t a, std::size_t b) {
        return lane[a].start == lane[b].start && lane[a].end == lane[b].end &&
               lane[a].operation.overlaps_next;
      };
      // Operations that run together share the height.
      const bool upper = i + 1 < lane.size() && together(i, i + 1);
      const bool lower = i > 0 && together(i - 1, i);
      const double height = upper || lower ? lane_height / 2 : lane_height;
      draw_operation(lane[i], lower ? y + height : y, height);
    }
    std::string peak = fmt::format("peak {:.4g}", outcome_.peak_activations[index]);
    if (!outcome_.peak_inputs.empty())
      peak += fmt::format(", inputs {}", outcome_.peak_inputs[index]);
    write(left() + lane_width_ + 10, y + 19, "quiet", peak);
  }

  void draw_operation(const TimedOperation& timed, double y, double height) {
    const PipelineOperation& operation = timed.operation;
    const double x = left() + timed.start * scale_;
    const double width = (timed.end - timed.start) * scale_;
    const Colour colour = paler(colour_of(operation.work), operation.chunk);
    svg_ += fmt::format("<g><title>{}, {:.6g} s to {:.6g} s</title>", describe(operation),
                        timed.start, timed.end);
    block(x, y, width, height, colour);
    const double stripe = operation.work == PipelineWork::Backward ? height / 5 : 0;
    if (stripe > 0)
      block(x, y + height - stripe, width, stripe, paler(weight_colour, operation.chunk));
    const std::string number = fmt::format("{}", operation.micro_batch);
    if (static_cast<double>(number.size()) * letter_width + 3 <= width) {
      const double size = height < lane_height ? 10 : 11;
      svg_ += fmt::format(
          "<text class=\"middle {}\" font-size=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>",
          wants_dark_text(colour) ? "dark" : "pale", size, x + width / 2,
          y + (height - stripe + 0.72 * size) / 2, number);
    }
    svg_ += "</g>\n";
  }

  void block(double x, double y, double width, double height, Colour colour) {
    const double gap = std::min(1.0, width / 4);
    svg_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\"/>", x, y,
        width - gap, height, hex(colour));
  }

  void draw_legend(double y) {
    constexpr std::array entries = {
        std::pair{PipelineWork::Forward, "forward"}, std::pair{PipelineWork::Backward, "backward"},
        std::pair{PipelineWork::BackwardInput, "backward of the input"},
        std::pair{PipelineWork::BackwardWeight, "backward of the weights"},
        std::pair{PipelineWork::Recompute, "recompute"}};
    double x = margin;
    for (const auto& [work, text] : entries) {
      if (!used(work)) continue;
      block(x, y - 11, 16, 14, colour_of(work));
      if (work == PipelineWork::Backward) block(x, y - 1, 16, 4, weight_colour);
      write(x + 22, y, "text", text);
      x += 22 + letter_width * static_cast<double>(std::string_view(text).size()) + 18;
    }
    const char* rest =
        schedule_.chunks > 1 ? "number: micro-batch; paler: later chunk" : "number: micro-batch";
    write(x, y, "quiet", rest);
  }

  bool used(PipelineWork work) const {
    return std::any_of(schedule_.order.begin(), schedule_.order.end(), [work](const auto& order) {
      return std::any_of(order.begin(), order.end(),
                         [work](const auto& operation) { return operation.work == work; });
    });
  }

  const PipelineSchedule& schedule_;
  const PipelineOutcome& outcome_;
  double lane_width_ = 0;
  double scale_ = 1;  // pixels a second
  std::string svg_;
};

}  // namespace

std::string timeline_svg(const PipelineSchedule& schedule, const PipelineOutcome& outcome) {
  std::size_t operations = 0;
  for (const auto& order : schedule.order) operations += order.size();
  if (operations > most_operations) {
    throw ConfigError("--svg", fmt::format("{} operations", operations),
                      fmt::format("a picture has at most {}; fewer micro-batches show the pattern",
                                  most_operations));
  }
  return TimelinePicture(schedule, outcome).draw();
}

}  // namespace garonne::plan
