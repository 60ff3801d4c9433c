#include "train/training_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/version.hpp"
#include "data/tokenizers/tokenizer.hpp"
#include "exec/profile/profile.hpp"
#include "train/checkpoint/manifest.hpp"
#include "train/evaluation/evaluation.hpp"
#include "train/plans/grid_plan.hpp"
#include "train/plans/tier_rows.hpp"
#include "train/setup/available_memory.hpp"
#include "train/setup/run_device.hpp"

namespace garonne::train {
namespace {

// Between planned and measured seconds, beyond which the profile is doubted.
constexpr double disagreement = 0.25;

// Of the model's own: what was measured once stands beside them for other models.
std::string products_text(const nn::Products& products, const nn::Model& model,
                          const nn::Declaration& declaration) {
  std::map<std::string, int> counts;
  const nlohmann::json chosen = products.to_json();
  for (const std::string& key : exec::product_keys(model, declaration.precision)) {
    if (const auto library = chosen.find(key); library != chosen.end())
      ++counts[library->get<std::string>()];
  }
  std::string line;
  for (const auto& [name, count] : counts)
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ", name, count);
  line += " (chosen by measurement, choices.json)";
  if (!declaration.device.is_gpu()) return line;
  return line + fmt::format(", rounded by train.products = {}",
                            product_rounding_name(declaration.products));
}

// Of the last step of this rank.
std::string copies_text(const plan::Program& program, const CopyTraffic& traffic,
                        const exec::StepOutputs& last) {
  double out = 0;
  double in = 0;
  double updating = 0;
  for (const auto& [lane, seconds] : last.copy_seconds) {
    if (lane == Lane::HostCompute) {
      updating = seconds;
      continue;
    }
    (lane == Lane::CopyOut || lane == Lane::DiskWrite ? out : in) += seconds;
  }
  const auto rate = [](std::int64_t bytes, double seconds) {
    return seconds > 0 ? static_cast<double>(bytes) / 1e9 / seconds : 0;
  };
  std::string text = fmt::format(
      "  copies    {} out at {:.2f} GB/s (planned {:.2f}), {} back at {:.2f} GB/s (planned "
      "{:.2f}); "
      "the last step waited {:.1f} ms for them\n",
      format_bytes(traffic.out_bytes), rate(traffic.out_bytes, out),
      rate(traffic.out_bytes, traffic.out_seconds), format_bytes(traffic.in_bytes),
      rate(traffic.in_bytes, in), rate(traffic.in_bytes, traffic.in_seconds),
      1e3 * waited_for_copies(program, last.measurements));
  if (updating > 0) text += fmt::format("  updates   {:.1f} ms on the host\n", 1e3 * updating);
  // A disk has its moments; below that, plans are of another one.
  constexpr double slow = 1.5;
  const bool on_disk = last.copy_seconds.contains(Lane::DiskWrite);
  if (on_disk && (out > slow * traffic.out_seconds || in > slow * traffic.in_seconds)) {
    text +=
        "  the disk is slower than it was measured: other programs use it, or it is worn or hot; "
        "`garonne profile\n  CONFIG --again` measures it once more\n";
  }
  return text;
}

// Nothing where there is a validation, or none is wanted.
std::string validation_note(const RunConfig& config, const DataFacts& facts) {
  const std::int64_t samples = facts.validation_samples.value_or(0);
  if (config.evaluation.batches == 0 || config.evaluation.every == 0 ||
      validation_micro_batches(config, samples) > 0)
    return "";
  return fmt::format(
      "          nothing is validated: there {} {} to validate with, and a micro-batch has {}\n",
      samples == 1 ? "is" : "are", counted(samples, "sample"), config.train.micro_batch);
}

}  // namespace

std::string model_text(const RunConfig& config, const Setup& whole, const Workload& workload,
                       int threads) {
  const std::int64_t micro_batches = micro_batches_per_rank(config);
  std::string text =
      fmt::format("build     {} (`garonne --version` names its libraries)\n", version_string());
  text += fmt::format(
      "model     {} · {} · {:.2f} M parameters, {}\n", config.model.kind, describe_sizes(whole),
      static_cast<double>(whole_parameter_elements(whole.model)) / 1e6, describe_numbers(config));
  text += fmt::format("data      {}\n", workload.summary());
  for (const std::string& note : workload.notes())
    text += fmt::format("          note: {}\n", note);
  text += validation_note(config, workload.facts());
  text += fmt::format("grid      {} · {} a rank · {} of {} a rank and step\n",
                      to_string(whole.grid.shape()), counted(threads, "thread"),
                      counted(micro_batches, "micro-batch"),
                      counted(config.train.micro_batch, "sample"));
  return text;
}

std::string plan_text(const PlannedTraining& planned) {
  const RunConfig& config = planned.config;
  const plan::Program& program = planned.program;
  const std::int64_t least = planned.choice.minimum_budget_bytes;
  std::string text =
      fmt::format("products  {}\n",
                  products_text(planned.products, planned.whole.model, planned.whole.declaration));
  text += fmt::format(
      "plan      {} · predicted peak {} · {:.1f} ms a step{}\n", program.name,
      format_bytes(program.peak_bytes), 1e3 * program.seconds,
      least == 0 ? "" : fmt::format(" · smallest budget {} B ({})", least, format_bytes(least)));
  if (planned.choice.cut_as_declared) text += cut_as_declared_note;
  // Of a GPU, the device has said so before.
  if (config.memory.budget == RunConfig::automatic_budget &&
      device_kind(config) != DeviceKind::Cuda)
    text += describe_automatic_budget(planned.ranks_on_node,
                                      program.budget_bytes() + planned.choice.reserved_bytes);
  return text;
}

std::string first_text(const RunConfig& config, int ranks) {
  return fmt::format("run       {} · {} · {} · {}\n", config.run.directory, config.model.kind,
                     counted(config.train.steps, "step"), counted(ranks, "rank"));
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::max(seconds, 0.0)));
  constexpr std::int64_t day = 86400;
  const std::string clock =
      fmt::format("{}:{:02}:{:02}", whole % day / 3600, whole / 60 % 60, whole % 60);
  return whole < day ? clock : fmt::format("{} d {}", whole / day, clock);
}

std::string step_text(const StepMetrics& metrics, std::int64_t steps, double seconds_left) {
  std::string text = fmt::format(
      "step {:>7}/{}  loss {:>8.4f}  norm {:>8.3f}  lr {:.2e}  {:>8.1f} ms  {:>9.0f} {}/s",
      metrics.step, steps, metrics.loss, metrics.gradient_norm, metrics.learning_rate,
      1e3 * metrics.seconds, metrics.items_per_second,
      metrics.item == token_item ? "tok" : "samples");
  if (metrics.utilisation > 0) text += fmt::format("  mfu {:4.1f} %", 100 * metrics.utilisation);
  if (seconds_left >= 0) text += "  left " + duration_text(seconds_left);
  return text + "\n";
}

std::string end_text(const RunConfig& config, std::int64_t step, double seconds,
                     const Workload& workload) {
  const std::string& run = config.run.directory;
  std::string text =
      fmt::format("step {} of {} after {}\n", step, config.train.steps, duration_text(seconds));
  text += fmt::format("next      garonne report {0} · garonne eval {0}", run);
  if (workload.item() == token_item) text += " --generate TEXT";
  if (workload.item() == token_item && !data::is_known_tokenizer(workload.facts().tokenizer))
    text += " --tokenizer FILE";
  text += "\n";
  return text;
}

std::string not_finite_advice(const RunConfig& config, std::int64_t saved_step) {
  const std::string clip = config.optimizer.clip_norm > 0
                               ? "lower optimizer.clip_norm"
                               : "set optimizer.clip_norm, which is 0 and clips nothing";
  std::string text = fmt::format(
      ". Lower optimizer.learning_rate, give a longer optimizer.warmup_steps, or {}, in another "
      "run.directory: the same command would ",
      clip);
  if (saved_step == 0) return text + "begin anew, as there is no checkpoint, and come here again";
  return text + fmt::format(
                    "go on from the checkpoint of step {} and come here again; with `--init-from "
                    "{}` another run begins with its weights",
                    saved_step, config.run.directory);
}

std::string no_space_advice(const std::string& failure, const RunConfig& config) {
  if (failure.find(std::strerror(ENOSPC)) == std::string::npos &&
      failure.find(std::strerror(EDQUOT)) == std::string::npos)
    return {};
  auto steps = list_checkpoints(config.run.directory);
  if (steps.size() < 2) {
    return ". There is no older checkpoint that could go; make room, and the same command goes on";
  }
  steps.pop_back();
  return fmt::format(
      ". Older checkpoints that could go: step{} {} in {}/checkpoints. A start with "
      "checkpoint.keep = 1{} removes all but the newest whole one",
      steps.size() == 1 ? "" : "s", fmt::join(steps, ", "), config.run.directory,
      config.checkpoint.keep_minutes > 0 ? " and checkpoint.keep_minutes = 0" : "");
}

std::string summary_text(const std::vector<PeakBytes>& peaks, std::int64_t budget_bytes,
                         const plan::Program& program, double median_seconds,
                         const exec::StepOutputs& last) {
  const double planned_seconds = program.seconds;
  std::string text = "plan beside measurement\n";
  for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
    const auto& [planned, measured, below, copy_planned, copy_measured] = peaks[rank];
    text += fmt::format(
        "  rank {:<4} peak planned {:>14} B  measured {:>14} B  ({:6.2f} %)  budget {} B\n", rank,
        planned, measured, 100.0 * static_cast<double>(measured) / static_cast<double>(planned),
        budget_bytes);
    if (copy_planned > 0) {
      text += fmt::format("  rank {:<4} copy planned {:>14} B  measured {:>14} B\n", rank,
                          copy_planned, copy_measured);
    }
    for (const PeakBytes::Below& one : below) {
      text += fmt::format("  rank {:<4} {} planned {:>14} B  measured {:>14} B\n", rank,
                          to_string(one.tier), one.planned, one.measured);
    }
  }
  double computed = 0;
  for (const auto& measurement : last.measurements) computed += measurement.seconds;
  const CopyTraffic traffic = copy_traffic(program);
  if (traffic.out_bytes > 0) {
    text += copies_text(program, traffic, last);
  }
  text += fmt::format(
      "  a step    planned {:.1f} ms  measured {:.1f} ms (median), {:.1f} ms in instructions of "
      "the last\n",
      1e3 * planned_seconds, 1e3 * median_seconds, 1e3 * computed);
  if (std::abs(planned_seconds - median_seconds) > disagreement * median_seconds) {
    text +=
        "  planned and measured seconds disagree: one of them was measured while the machine "
        "did other things;\n  `garonne profile CONFIG --again` measures the nodes once more\n";
  }
  return text;
}

}  // namespace garonne::train
