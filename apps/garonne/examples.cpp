#include "examples.hpp"

#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"

namespace garonne::apps {
namespace {

using Lines = std::vector<const char*>;

// By the words of the command. At most 78 characters a line, so that none breaks on a terminal of
// 80.
const std::map<std::string, Lines>& examples() {
  static const std::map<std::string, Lines> known = {
      {"train",
       {"garonne train run.toml --train.steps 100",
        "mpirun -n 2 garonne train run.toml --grid.data 2 --memory.budget 4GiB"}},
      {"plan",
       {"garonne plan run.toml --memory.budget 300MiB --explain",
        "garonne plan run.toml --ranks 8"}},
      {"profile", {"garonne profile run.toml"}},
      {"simulate",
       {"garonne simulate --schedule zb-h1 --stages 4 --micro-batches 8",
        "garonne simulate --all --stages 4 --micro-batches 8"}},
      {"data", {"garonne data text corpus.txt --output corpus.h5"}},
      {"data text",
       {"garonne data text corpus.txt --validation held_out.txt --output corpus.h5",
        "garonne data text corpus.txt --tokenizer tokenizer.json --output corpus.h5"}},
      {"data inspect", {"garonne data inspect corpus.h5", "garonne data inspect darcy.h5"}},
      {"data statistics", {"garonne data statistics darcy.h5 --output statistics.h5"}},
      {"data batch", {"garonne data batch run.toml --step 3"}},
      {"data darcy",
       {"garonne data darcy --samples 200 --resolution 85 --output darcy.h5",
        "garonne data darcy --output darcy.h5 --test-samples 50 --test darcy_test.h5"}},
      {"data navier-stokes",
       {"garonne data navier-stokes --samples 20 --resolution 64 --output flow.h5"}},
      {"data shallow-water",
       {"garonne data shallow-water --latitudes 32 --longitudes 64 --output waves",
        "mpirun -n 4 garonne data shallow-water --trajectories 100 --output waves"}},
      {"data synthetic-era5",
       {"garonne data synthetic-era5 --latitudes 33 --longitudes 64 \\",
        "  --channels t2m,z500 --years 2 --output weather"}},
      {"report", {"garonne report runs/first"}},
      {"eval",
       {"garonne eval runs/first",
        "garonne eval runs/first --generate \"Once upon a time\" --tokens 100"}},
      {"forecast", {"garonne forecast runs/weather --steps 20 --output forecast.nc"}},
      {"check", {"garonne check runs/first/program"}},
      {"checkpoint",
       {"garonne checkpoint list runs/first",
        "garonne checkpoint export runs/first --to huggingface exported"}},
      {"checkpoint list", {"garonne checkpoint list runs/first"}},
      {"checkpoint inspect", {"garonne checkpoint inspect runs/first"}},
      {"checkpoint verify", {"garonne checkpoint verify runs/first"}},
      {"checkpoint reshard", {"garonne checkpoint reshard runs/first runs/two --ranks 2"}},
      {"checkpoint export", {"garonne checkpoint export runs/first --to huggingface exported"}},
      {"checkpoint import",
       {"garonne checkpoint import --from huggingface exported --output runs/imported"}},
      {"bench",
       {"garonne bench run.toml --steps 20", "mpirun -n 2 garonne bench run.toml --grid.data 2"}},
      {"bench budgets", {"garonne bench budgets run.toml --shares 70,50"}},
      {"bench offload",
       {"garonne bench offload run.toml --run.device emulated --memory.host_budget 1GiB"}},
      {"bench device", {"garonne bench device --output cluster.toml"}},
      {"bench links", {"mpirun -n 2 garonne bench links --output cluster.toml"}},
      {"bench solvers", {"garonne bench solvers"}},
      {"bench transforms",
       {"garonne bench transforms --grid equiangular --latitudes 181 --longitudes 360"}},
      {"solve",
       {"garonne plan run.toml --chain chain.json", "garonne solve chain.json --budget 64MiB",
        "garonne solve chain.json --sweep 10"}},
      {"stop", {"garonne stop runs/first --wait"}}};
  return known;
}

void add_below(CLI::App& app, const std::string& words) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    const std::string path = (words.empty() ? "" : words + " ") + command->get_name();
    const auto found = examples().find(path);
    expect(found != examples().end(), "there is an example of every command, as of " + path);
    std::string footer = command->get_footer();
    footer += footer.empty() ? "Examples:" : "\n\nExamples:";
    for (const char* line : found->second) footer += std::string("\n  ") + line;
    command->footer(footer);
    add_below(*command, path);
  }
}

}  // namespace

void add_examples(CLI::App& app) {
  add_below(app, "");
}

}  // namespace garonne::apps
