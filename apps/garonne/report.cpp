#include "train/report/report.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "base/bytes.hpp"
#include "base/file.hpp"
#include "base/output_file.hpp"
#include "base/progress.hpp"
#include "command.hpp"

namespace garonne::apps {
namespace {

struct Options {
  std::string run;
  std::string output;
  std::string cluster;
  train::ReportOptions report;
};

ExitCode write_report(Options options) {
  const std::string path = options.output.empty() ? options.run + "/report.html" : options.output;
  // A run directory that is not there is said to be none.
  std::error_code error;
  if (!options.output.empty() || std::filesystem::is_directory(options.run, error)) {
    expect_output("--output", path,
                  text_output("a report of Garonne", "<title>Garonne report</title>"));
  }
  if (!options.cluster.empty()) options.report.cluster = plan::load_cluster(options.cluster);
  // One bar for each thing that is planned.
  std::optional<Progress> bar;
  std::string label;
  options.report.progress = [&](const std::string& what, int done, int all) {
    if (what != label) {
      if (bar) bar->clear();
      bar.emplace(label = what, all);
    }
    bar->advance_to(done);
  };
  const std::string page = train::report_page(train::report_data(options.run, options.report));
  if (bar) bar->clear();
  write_file_durably(path, page);
  fmt::print("report: {} ({})\n", path, format_bytes(static_cast<std::int64_t>(page.size())));
  return ExitCode::Done;
}

}  // namespace

void add_report(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand(
      "report",
      "draw a run into one HTML file: memory, schedule, plans, losses; no MPI, no device");
  const auto options = std::make_shared<Options>();
  command->add_option("run", options->run, "run directory")->required();
  command->add_option("--output", options->output, "where to write it [<run>/report.html]")
      ->type_name("FILE");
  command
      ->add_option("--budgets", options->report.budgets,
                   "points of the curve of time against budget; 0 = no curve [20]")
      ->check(CLI::IsMember({0}) | CLI::Range(2, 1000));
  command
      ->add_option("--cluster", options->cluster,
                   "cluster file of the devices it was on, for the share of their operations")
      ->type_name("FILE");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "report");
      return write_report(*options);
    };
  });
}

}  // namespace garonne::apps
