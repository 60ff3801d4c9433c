#include "exec/profile/profile.hpp"
#include "base/json_output.hpp"
#include "exec/profile/cached_costs.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "command.hpp"
#include "plan/model/cost_table.hpp"
#include "train/setup/cluster.hpp"
#include "train/setup/planning.hpp"
#include "train/setup/run_device.hpp"
#include "train/workload/workload.hpp"

namespace garonne::apps {

void add_profile(CLI::App& app, Chosen& chosen) {
  CLI::App* command = app.add_subcommand(
      "profile", "measure each distinct node of a model once and cache the costs");
  const auto config = add_config_options(*command);
  const auto json = std::make_shared<bool>(false);
  const auto again = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "print the cost table (format garonne.costs)");
  command->add_flag("--again", *again,
                    "measure what is cached once more and keep the shorter times: for a cache that "
                    "was filled while the machine did other things");
  command->callback([=, &chosen] {
    chosen.action = [=](dist::Session& session) {
      expect_one_rank(session, "profile");
      const RunConfig loaded = config->load();
      train::RunDevice device(loaded, session);
      fmt::print("{}", *json ? std::string() : device.text());
      const train::DataFacts facts = train::facts_of(loaded);
      const int threads = train::threads_of_rank(loaded, static_cast<int>(loaded.grid.data));
      const train::Setup setup = train::make_setup(loaded, facts, threads);
      const train::ComputeSession compute(threads);
      device.use_kernels(session);
      const plan::CostTable table =
          *again ? train::measure_costs_again(setup, threads, device)
                 : train::obtain_costs(setup, threads, nlohmann::json::object(), device, session);
      if (*json) {
        fmt::print("{}\n", json_text(plan::to_json(table), 1));
        return ExitCode::Done;
      }
      fmt::print("{}\n{:<44} {:>10} {:>10} {:>12} {:>12} {:>12}\n", table.machine, "node",
                 "forward ms", "backward", "value B", "private B", "transient B");
      std::set<std::string> shown;
      for (const auto& node : setup.model.graph.nodes) {
        for (int k = 0; k < node.keep_options(); ++k) {
          // What communicates is not measured here.
          const std::string key = plan::cost_key_of(node, k);
          const auto found = table.rows.find(key);
          if (found == table.rows.end() || !shown.insert(key).second) continue;
          const plan::CostRow& row = found->second;
          fmt::print("{:<44} {:>10.3f} {:>10.3f} {:>12} {:>12} {:>12}\n", key,
                     1e3 * row.forward_keep_seconds, 1e3 * row.backward_seconds, row.value_bytes,
                     row.private_bytes, row.backward_transient_bytes);
        }
      }
      for (const std::string& key : exec::product_keys(setup.model, setup.declaration.precision)) {
        fmt::print("{:<44} {}\n", key, table.products.at(key).get<std::string>());
      }
      for (const auto& [disk, rates] : table.disks) {
        fmt::print(
            "disk {:<39} writes {:.2f} GB/s, reads {:.2f} GB/s, both at once while computing\n",
            disk, rates.write / 1e9, rates.read / 1e9);
      }
      fmt::print("cached in {}\n", exec::cost_table_path(table.machine));
      return ExitCode::Done;
    };
  });
}

}  // namespace garonne::apps
