#include "eval_fields.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/bytes.hpp"
#include "base/counted.hpp"
#include "base/file.hpp"
#include "base/json_output.hpp"
#include "base/output_file.hpp"
#include "train/evaluation/climatology.hpp"

namespace garonne::apps {
namespace {

constexpr std::size_t most_channels = 12;  // of the table; files have them all

std::string lead_text(const data::SkillSetting& setting, std::int64_t step) {
  if (setting.fields.pairs) return "—";
  if (setting.lead_seconds <= 0) return counted(step, "step");
  const double seconds = static_cast<double>(step) * setting.lead_seconds;
  const double frame = setting.fields.frame_seconds;
  const std::int64_t months = data::months_of_step(frame, setting.fields.calendar);
  if (months > 0)
    return data::months_text(months * step * std::llround(setting.lead_seconds / frame));
  // Of yearly means, of which a model's year may have 360 days.
  const double year = train::year_seconds(setting.fields.calendar);
  if (std::abs(setting.lead_seconds / year - std::round(setting.lead_seconds / year)) < 0.01 &&
      setting.lead_seconds > 0.5 * year) {
    const double years = std::round(seconds / year);
    return fmt::format("{} year{}", years, years == 1 ? "" : "s");
  }
  if (seconds < 3600) return fmt::format("{:.4g} s", seconds);
  const double hours = seconds / 3600;
  if (hours < 72) return fmt::format("{:.4g} h", hours);
  if (hours < 24 * 1000) return fmt::format("{:.4g} d", hours / 24);
  return fmt::format("{:.4g} years", seconds / year);
}

// 1, 2, 4, … and the last.
std::vector<std::int64_t> shown_leads(std::int64_t leads) {
  std::vector<std::int64_t> shown;
  for (std::int64_t lead = 1; lead < leads; lead *= 2) shown.push_back(lead);
  shown.push_back(leads);
  return shown;
}

std::string number_text(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}g}", value, digits) : "—";
}

void print_ensembles(const data::SkillSetting& setting, const data::SkillResults& results,
                     const std::vector<std::string>& names, std::size_t width) {
  fmt::print(
      "\nensembles of {} members, noise of {:g} deviations\n{:<{}}  {:>9}  {:>12}  {:>12}  "
      "{:>12}\n",
      setting.members, setting.noise, "channel", width, "lead", "CRPS", "spread", "spread/skill");
  for (std::size_t channel = 0; channel < std::min(names.size(), most_channels); ++channel) {
    for (const std::int64_t lead : shown_leads(setting.leads)) {
      const std::size_t at = static_cast<std::size_t>(lead - 1) * names.size() + channel;
      fmt::print("{:<{}}  {:>9}  {:>12}  {:>12}  {:>12}\n", names[channel], width,
                 lead_text(setting, lead), number_text(results.crps[at], 5),
                 number_text(results.spread[at], 5),
                 number_text(results.spread_skill_ratio[at], 4));
    }
  }
}

void print_table(const data::SkillSetting& setting, const data::SkillResults& results,
                 const std::string& note) {
  const std::size_t channels = setting.channels.size();
  const std::size_t sources = setting.sources.size();
  const auto at = [&](const std::vector<double>& values, std::size_t source, std::int64_t lead,
                      std::size_t channel) {
    const std::size_t place =
        (source * static_cast<std::size_t>(setting.leads) + static_cast<std::size_t>(lead - 1)) *
            channels +
        channel;
    return values[place];
  };
  fmt::print("step {}: {} of {}\n", setting.step,
             counted(setting.samples, setting.fields.pairs ? "pair" : "forecast"), setting.data);
  if (!note.empty()) fmt::print("note: {}\n", note);
  fmt::print("weights: {} · climatology: {}\n\n", setting.weighting, setting.climatology);
  std::size_t width = 7;
  std::vector<std::string> names;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    const auto& units = setting.fields.target_units;
    const std::string unit = channel < units.size() ? units[channel] : "";
    const auto& meanings = setting.fields.target_long_names;
    const std::string meaning = channel < meanings.size() ? meanings[channel] : "";
    names.push_back(setting.channels[channel] + (meaning.empty() ? "" : ", " + meaning) +
                    (unit.empty() ? "" : fmt::format(" ({})", unit)));
    width = std::max(width, names.back().size());
  }
  std::string head = fmt::format("{:<{}}  {:>9}", "channel", width, "lead");
  for (const auto& source : setting.sources) head += fmt::format("  {:>12}", source);
  head += fmt::format("  {:>9}", "bias");
  if (setting.fields.pairs) {
    head += fmt::format("  {:>11}", "relative L2");
  } else {
    head += fmt::format("  {:>7}  {:>11}", "ACC", "persistence");
  }
  fmt::print("{:<{}}  {:>9}  {:>12}\n{}\n", "", width, "", "RMSE", head);
  for (std::size_t channel = 0; channel < std::min(channels, most_channels); ++channel) {
    for (const std::int64_t lead : shown_leads(setting.leads)) {
      std::string line =
          fmt::format("{:<{}}  {:>9}", names[channel], width, lead_text(setting, lead));
      for (std::size_t source = 0; source < sources; ++source) {
        line += fmt::format("  {:>12}", number_text(at(results.rmse, source, lead, channel), 5));
      }
      line += fmt::format("  {:>9}", number_text(at(results.bias, 0, lead, channel), 3));
      if (setting.fields.pairs) {
        line += fmt::format("  {:>11}", number_text(at(results.relative_l2, 0, lead, channel), 4));
      } else {
        line += fmt::format("  {:>7}  {:>11}",
                            number_text(at(results.anomaly_correlation, 0, lead, channel), 4),
                            number_text(at(results.anomaly_correlation, 1, lead, channel), 4));
      }
      fmt::print("{}\n", line);
    }
  }
  if (!results.crps.empty()) print_ensembles(setting, results, names, width);
  if (channels > most_channels) {
    fmt::print("… and {} channels more in the files\n", channels - most_channels);
  }
}

}  // namespace

FieldEval::FieldEval(const FieldEvalOptions& options, std::string run, train::TrainedModel& trained,
                     const train::FieldWorkload& workload, dist::Session& session)
    : run_(std::move(run)),
      output_(options.output.empty() ? run_ + "/skill.h5" : options.output),
      usual_(options.output.empty()) {
  session.agree([&] {
    note_ = train::has_validation(trained.config)
                ? workload.overlap_note()
                : "the run has no validation data: loss and skill are of what the model has seen";
    evaluation_.emplace(trained, workload, run_, options.evaluation);
    if (session.rank() != 0) return;
    if (usual_) {
      expect_output("--output", run_ + "/" + train::skill_page_file,
                    json_output("the skill that a report shows", {"garonne.skill"}));
    }
    page_.emplace(evaluation_->setting());
    file_.emplace(output_, evaluation_->setting());
  });
}

nlohmann::ordered_json FieldEval::run(bool quiet, dist::Session& session) {
  const data::SkillResults results = evaluation_->run(
      session,
      [&](std::size_t sample, std::size_t lead, double seconds, std::span<const float> truth,
          std::span<const float> forecast) {
        file_->write_map(sample, lead, seconds, truth, forecast);
        page_->add_map(sample, lead, seconds, truth, forecast);
      },
      /*show_progress=*/true);
  nlohmann::ordered_json json;
  session.agree([&] {
    if (session.rank() != 0) return;
    const data::SkillSetting& setting = evaluation_->setting();
    file_->finish(setting.climatology, results);
    json = page_->to_json(setting, results);
    json["peak_bytes"] = evaluation_->peak_bytes();
    json["planned_peak_bytes"] = evaluation_->planned_peak_bytes();
    const std::string page_path = run_ + "/" + train::skill_page_file;
    if (usual_) write_file_durably(page_path, json_text(json));
    if (!quiet) {
      print_table(setting, results, note_);
      fmt::print("\npeak {} of {} planned · {}{}\n", format_bytes(evaluation_->peak_bytes()),
                 format_bytes(evaluation_->planned_peak_bytes()), output_,
                 usual_ ? fmt::format(" · {} (for `garonne report`)", page_path) : "");
    }
    json.erase("maps");
    if (!note_.empty()) json["note"] = note_;
    json["output"] = output_;
  });
  return json;
}

}  // namespace garonne::apps
