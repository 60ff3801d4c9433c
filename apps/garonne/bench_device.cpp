// `garonne bench device`: what a device does, as a cluster file for `plan`.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_output.hpp"
#include "base/key_limits.hpp"
#include "cluster_output.hpp"
#include "command.hpp"
#include "counts.hpp"
#include "train/bench/device_benchmark.hpp"
#include "train/setup/cluster.hpp"

namespace garonne::apps {

void add_bench_device(CLI::App& bench, Chosen& chosen) {
  CLI::App* command = bench.add_subcommand(
      "device",
      "what the processor or a GPU does: products by type and shape, memory, the smallest kernel, "
      "copies and a disk, as a cluster file for `garonne plan --cluster`");
  const auto options = std::make_shared<train::DeviceBenchmarkOptions>();
  const auto config = std::make_shared<RunConfig>();
  const auto output = std::make_shared<std::string>();
  const auto json = std::make_shared<bool>(false);
  command->add_option("--output", *output, "cluster file to write (docs/formats.md)")
      ->type_name("FILE");
  command
      ->add_option("--links", options->links,
                   "cluster file that has nodes and links, as of `garonne bench links`; without it "
                   "what is written is one device")
      ->type_name("FILE");
  command->add_option("--disk", options->disk, "folder on a disk that is measured, too")
      ->type_name("DIRECTORY");
  command->add_option("--device", config->run.device, "what is measured: auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->type_name("NAME")
      ->capture_default_str();
  command
      ->add_option("--largest", options->largest_side,
                   "rows, columns and depth of products; 2048 of processors and 8192 of GPUs where "
                   "not given")
      ->check(CLI::Range(std::int64_t{64}, std::int64_t{1} << 15));
  command->add_option("--seconds", options->seconds_each, "for each thing that is measured")
      ->check(CLI::Range(1e-6, 1e6))
      ->capture_default_str();
  command
      ->add_option("--threads", config->run.threads,
                   "of a rank; 0 = the cores of the node over its ranks")
      ->check(count(0, most_threads))
      ->capture_default_str();
  command->add_flag("--json", *json, "print JSON");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_cluster_output(session, *output, "bench device", {options->links});
      options->threads = train::threads_of_rank(*config, session.ranks_on_node());
      const plan::Cluster cluster = train::run_device_benchmark(*options, *config, session);
      write_cluster(session, *output, cluster);
      if (session.rank() != 0) return ExitCode::Done;
      if (*json) {
        const nlohmann::ordered_json result = {{"cluster", plan::to_toml(cluster)}};
        fmt::print("{}\n", json_text(result));
      } else {
        fmt::print("{}", train::format_device_benchmark(cluster));
        if (!output->empty()) fmt::print("written to {}\n", *output);
      }
      return ExitCode::Done;
    };
  });
}

}  // namespace garonne::apps
