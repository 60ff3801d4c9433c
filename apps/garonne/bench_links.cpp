// `garonne bench links`: latency and rate between ranks, as a cluster file for `plan`.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "base/json_output.hpp"
#include "base/key_limits.hpp"
#include "cluster_output.hpp"
#include "command.hpp"
#include "counts.hpp"
#include "train/bench/link_benchmark.hpp"
#include "train/setup/cluster.hpp"

namespace garonne::apps {
namespace {

nlohmann::ordered_json fit_json(const dist::LinkFit& fit) {
  return {{"latency_seconds", fit.latency_seconds},
          {"bytes_per_second", fit.bytes_per_second},
          {"median_error", fit.median_error},
          {"worst_error", fit.worst_error}};
}

nlohmann::ordered_json link_json(const std::optional<train::MeasuredLink>& link) {
  if (!link) return nullptr;
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& series : link->series) {
    for (const auto& sample : series.samples) {
      rows.push_back(
          {{"what", series.pattern == dist::LinkPattern::Message ? "message" : "all-reduce"},
           {"ranks", series.members},
           {"bytes", sample.bytes},
           {"median_seconds", sample.median_seconds},
           {"lower_seconds", sample.lower_seconds},
           {"upper_seconds", sample.upper_seconds}});
    }
  }
  return {{"samples", rows},
          {"messages", fit_json(link->messages)},
          {"all_reduces", fit_json(link->all_reduces)},
          {"together", fit_json(link->together)}};
}

}  // namespace

void add_bench_links(CLI::App& bench, Chosen& chosen) {
  CLI::App* command = bench.add_subcommand(
      "links",
      "under mpirun: latency and rate of messages and all-reduces between ranks of one host and of "
      "different hosts, and what the devices do, as a cluster file for `garonne plan --cluster`");
  const auto options = std::make_shared<train::LinkBenchmarkOptions>();
  const auto output = std::make_shared<std::string>();
  const auto threads = std::make_shared<std::int64_t>(0);
  const auto json = std::make_shared<bool>(false);
  command->add_option("--output", *output, "cluster file to write (docs/formats.md)")
      ->type_name("FILE");
  command->add_option("--largest", options->largest_bytes, "bytes of the largest message")
      ->check(CLI::Range(std::int64_t{4096}, std::int64_t{1} << 30))
      ->capture_default_str();
  command->add_option("--seconds", options->seconds_each, "for each size of each pair or group")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str();
  command->add_option("--pairs", options->pairs, "of each kind, at most")
      ->check(count())
      ->capture_default_str();
  command->add_option("--threads", *threads, "of a rank; 0 = the cores of the node over its ranks")
      ->check(count(0, most_threads))
      ->capture_default_str();
  command->add_flag("--json", *json, "print JSON");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_cluster_output(session, *output, "bench links");
      RunConfig config;
      config.run.threads = *threads;
      options->threads = train::threads_of_rank(config, session.ranks_on_node());
      const train::LinkBenchmark benchmark = train::run_link_benchmark(*options, session);
      write_cluster(session, *output, benchmark.cluster);
      if (session.rank() != 0) return ExitCode::Done;
      if (*json) {
        const nlohmann::ordered_json result = {{"one_host", link_json(benchmark.one_host)},
                                               {"across_hosts", link_json(benchmark.across_hosts)},
                                               {"cluster", plan::to_toml(benchmark.cluster)}};
        fmt::print("{}\n", json_text(result));
      } else {
        fmt::print("{}", train::format_link_benchmark(benchmark));
        if (!output->empty()) fmt::print("written to {}\n", *output);
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace garonne::apps
