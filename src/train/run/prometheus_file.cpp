#include "train/run/prometheus_file.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/partial_file.hpp"

namespace garonne::train {
namespace {

// As values of labels are written.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char character : text) {
    if (character == '\\' || character == '"') result += '\\';
    result += character == '\n' ? ' ' : character;
  }
  return result;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

class Exposition {
 public:
  explicit Exposition(std::string labels) : labels_(std::move(labels)) {}
  void sample(const char* name, const char* type, const char* help, double value) {
    text_ += fmt::format("# HELP garonne_{0} {1}\n# TYPE garonne_{0} {2}\ngaronne_{0}{{{3}}} {4}\n",
                         name, help, type, labels_, number_text(value));
  }
  void gauge(const char* name, const char* help, double value) {
    sample(name, "gauge", help, value);
  }
  void counter(const char* name, const char* help, double value) {
    sample(name, "counter", help, value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string labels_;
  std::string text_;
};

}  // namespace

std::string prometheus_text(const RunGauges& gauges) {
  Exposition out(
      fmt::format("run=\"{}\",version=\"{}\"", escaped(gauges.run), escaped(gauges.version)));
  const StepMetrics& step = gauges.step;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  out.gauge("step", "Steps that are done.", real(step.step));
  out.gauge("last_step", "Steps that are to be done.", real(gauges.last_step));
  out.gauge("saved_step", "Step of the last checkpoint.", real(gauges.saved_step));
  out.gauge("ranks", "Ranks of the run.", real(gauges.ranks));
  out.gauge("start_time_seconds", "When this start began, since 1970.", gauges.started_at);
  out.gauge("loss", "Training loss of the step.", step.loss);
  if (gauges.validation_loss)
    out.gauge("validation_loss", "Last validation loss.", *gauges.validation_loss);
  out.gauge("gradient_norm", "Norm of all gradients before clipping.", step.gradient_norm);
  out.gauge("learning_rate", "Learning rate of the step.", step.learning_rate);
  out.gauge("step_seconds", "Seconds of the step.", step.seconds);
  out.gauge("data_seconds", "Of them waiting for samples.", step.data_seconds);
  out.gauge("between_seconds", "Seconds before the step for records and ranks that meet.",
            step.between_seconds);
  out.gauge("samples_per_second", "Samples a second.", step.samples_per_second);
  if (step.item == token_item)
    out.gauge("tokens_per_second", "Tokens a second.", step.items_per_second);
  out.gauge("peak_bytes", "Peak of the rank with the largest planned one.", real(step.peak_bytes));
  out.gauge("planned_peak_bytes", "What was planned for it.", real(step.planned_peak_bytes));
  out.counter("checkpoint_seconds_total", "Seconds of saving since this start.",
              gauges.checkpoint_seconds);
  out.counter("validation_seconds_total", "Seconds of validation since this start.",
              gauges.validation_seconds);
  return out.take();
}

PrometheusFile::PrometheusFile(std::string path, std::function<void(const std::string&)> warn)
    : path_(std::move(path)), warn_(std::move(warn)) {}

void PrometheusFile::write(const std::string& text) {
  try {
    PartialFile partial(path_);
    FileWriter file(partial.path());
    file.write(text.data(), text.size());
    file.close();
    partial.publish_without_waiting();
  } catch (const IoError& failure) {
    if (!std::exchange(failing_, true))
      warn_(fmt::format("--prometheus: {}; the run goes on without it", failure.what()));
    return;
  }
  if (std::exchange(failing_, false))
    warn_(fmt::format("--prometheus: {} is written again", path_));
}

}  // namespace garonne::train
