// `garonne train --prometheus FILE`: the state of a run as text that Prometheus collects, as by the
// textfile collector of its node exporter.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "train/run/metrics_file.hpp"

namespace garonne::train {

struct RunGauges {
  std::string run;  // directory
  std::string version;
  std::int64_t ranks = 1;
  std::int64_t last_step = 0;  // that is to be reached
  std::int64_t saved_step = 0;
  double started_at = 0;          // seconds since 1970
  double checkpoint_seconds = 0;  // of this start so far
  double validation_seconds = 0;
  StepMetrics step;
  std::optional<double> validation_loss;  // the last one
};

// The text exposition format of Prometheus, version 0.0.4: a HELP and a TYPE line and a sample for
// each name.
std::string prometheus_text(const RunGauges& gauges);

// The file of that text, which is replaced as a whole. Who collects it may find it missing, empty
// or old after a power cut, and a run goes on without it: neither waits for the disk nor throws,
// and says what failed once, and once when it works again.
class PrometheusFile {
 public:
  PrometheusFile(std::string path, std::function<void(const std::string&)> warn);
  void write(const std::string& text);

 private:
  std::string path_;
  std::function<void(const std::string&)> warn_;
  bool failing_ = false;
};

}  // namespace garonne::train
