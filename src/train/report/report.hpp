// The report of a run: one HTML file that needs nothing else, from what is in the run directory.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "plan/model/cluster.hpp"

namespace garonne::train {

struct ReportOptions {
  int budgets = 20;  // points of the curve of time against budget; 0 = no curve
  // Of the devices that the run was on: what they do at most.
  std::optional<plan::Cluster> cluster;
  // Told what is being planned, and (done, all).
  std::function<void(const std::string&, int, int)> progress = [](const std::string&, int, int) {};
};

// Everything that the page shows (format "garonne.report", docs/formats.md). No device and no data
// file is needed where the run has a checkpoint. Throws IoError for what is missing or unreadable,
// ConfigError for files that are malformed; both name the path.
nlohmann::ordered_json report_data(const std::string& run_directory, const ReportOptions& options);

// The page around the data. Whatever text the data hold stays text.
std::string report_page(const nlohmann::ordered_json& data);

}  // namespace garonne::train
