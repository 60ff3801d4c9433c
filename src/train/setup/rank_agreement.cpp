#include "train/setup/rank_agreement.hpp"

#include <ATen/Version.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "base/error.hpp"
#include "base/file.hpp"
#include "base/hash.hpp"
#include "base/lower_case.hpp"
#include "base/precision.hpp"
#include "kernels/session.hpp"
#include "nn/gemm/product.hpp"
#include "train/setup/cluster.hpp"
#include "train/setup/config_choices.hpp"

namespace garonne::train {
namespace {

constexpr std::array keys_of_files = {"data.path", "data.validation", "data.statistics",
                                      "grid.schedule_file"};

// What the libraries of matrix products and threads let choose bits or threads by.
constexpr std::array variables = {
    "OMP_THREAD_LIMIT",        "OMP_DYNAMIC",        "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS", "MKL_DEBUG_CPU_TYPE", "MKL_DYNAMIC",
    "ONEDNN_MAX_CPU_ISA",      "DNNL_MAX_CPU_ISA",   "ONEDNN_DEFAULT_FPMATH_MODE",
    "DNNL_DEFAULT_FPMATH_MODE"};

bool names_a_file(const std::string& key) {
  return std::find(keys_of_files.begin(), keys_of_files.end(), key) != keys_of_files.end();
}

// The set that all can do, `sets` being in ascending order.
dist::Remedy set_to_least(const char* variable, std::vector<std::string> sets) {
  return [=](const std::vector<std::string>& values) {
    for (const std::string& set : sets) {
      if (std::find(values.begin(), values.end(), set) != values.end())
        return fmt::format("set {}={} in the environment of all ranks", variable, set);
    }
    return fmt::format("set {} to the same on all ranks", variable);
  };
}

}  // namespace

dist::Facts configuration_facts(const RunConfig& config) {
  const dist::Remedy remedy = dist::advise("give every rank the same run file and options");
  dist::Facts facts;
  for (const auto& key : config_keys()) {
    const std::string value = key.get(config);
    if (key.name == "run.directory") {
      // A relative one is another folder where ranks were started in different places.
      const std::filesystem::path folder(value);
      facts.push_back({key.name,
                       value.empty() ? value : absolute(folder).lexically_normal().string(), remedy,
                       ""});
    } else if (key.name == "grid.schedule_file" && !value.empty()) {
      facts.push_back({key.name,
                       hash_text(read_file_of_key(key.name, value, "give the path of a schedule")),
                       dist::advise("give every rank a copy of the same file"), value});
    } else {
      // Whether there is a file at all is no matter of where it lies.
      const bool compared = !names_a_file(key.name) || value.empty();
      facts.push_back({key.name, compared ? value : "a file", remedy, compared ? "" : value});
    }
  }
  return facts;
}

dist::Facts machine_facts(const RunConfig& config) {
  std::string capability = lower_case(at::get_cpu_capability());
  if (capability == "no avx") capability = "default";
  dist::Facts facts = {{"instructions of the kernels", kernels::instruction_set(),
                        set_to_least("GARONNE_INSTRUCTIONS", {"baseline", "avx2", "avx512"}), ""},
                       {"instructions of the tensor library", capability,
                        set_to_least("ATEN_CPU_CAPABILITY", {"default", "avx2", "avx512"}), ""}};
  if (parse_precision(config.train.precision) == Precision::BFloat16) {
    facts.push_back({"products of bfloat16",
                     nn::multiplies_bfloat16() ? "by the processor" : "in blocks of float32",
                     dist::advise("give all ranks processors of one kind, or set train.precision "
                                  "to float32"),
                     ""});
  }
  for (const char* variable : variables) {
    const char* value = std::getenv(variable);  // NOLINT(concurrency-*)
    if (value == nullptr) continue;
    facts.push_back({variable, value,
                     dist::advise("set it to the same in the environment of all ranks, or of none"),
                     ""});
  }
  return facts;
}

dist::Facts product_facts(const nlohmann::json& products) {
  std::set<std::string> libraries;
  for (const auto& [key, library] : products.items())
    libraries.insert(library.is_string() ? library.get<std::string>() : library.dump());
  dist::Facts facts;
  for (const std::string& library : libraries) {
    const nn::ProductLibrary* known = nn::find_product_library(library);
    const std::string version = known == nullptr ? "in this build" : known->version();
    facts.push_back({"the library " + library + " of matrix products", version,
                     dist::advise("install the same on all nodes, or set GARONNE_OPENBLAS on all "
                                  "ranks"),
                     ""});
  }
  return facts;
}

dist::Facts checkpoint_facts(const StartingPoint& start) {
  const dist::Remedy remedy = dist::advise(
      "give every rank the same run directory, on a file system that all nodes share, or whole "
      "copies of one checkpoint");
  if (start.checkpoint.empty()) return {{"the checkpoint to start from", "none", remedy, ""}};
  return {{"the checkpoint to start from",
           fmt::format("step {}, manifest {}", start.step,
                       hash_file(start.checkpoint + "/manifest.json").substr(0, 16)),
           remedy, start.checkpoint}};
}

int agree_on_run(const RunConfig& config, dist::Session& session, const Cores& cores) {
  dist::agree_on(session, [&] {
    dist::Facts facts = configuration_facts(config);
    dist::append(machine_facts(config), facts);
    return facts;
  });
  return static_cast<int>(session.all_reduce_min(
      std::vector<std::int64_t>{threads_of_rank(config, session.ranks_on_node(), cores)})[0]);
}

int ranks_on_largest_node(dist::Session& session) {
  return static_cast<int>(
      session.all_reduce_max(std::vector<std::int64_t>{session.ranks_on_node()})[0]);
}

RunConfig with_paths_of_first_rank(RunConfig config, dist::Session& session) {
  if (session.size() == 1) return config;
  const std::string text = session.broadcast(config_to_toml(config));
  RunConfig first;
  session.agree(
      [&] { first = parse_config(text, "the configuration of rank 0", {}, config_choices()); });
  for (const auto& key : config_keys()) {
    if (names_a_file(key.name)) key.set(config, key.get(first));
  }
  return config;
}

std::int64_t budget_of_ranks(const RunConfig& config, dist::Session& session) {
  std::int64_t budget = 0;
  session.agree([&] { budget = resolve_budget(config, session.ranks_on_node()); });
  return session.all_reduce_min(std::vector<std::int64_t>{budget})[0];
}

void expect_same_programs(const Grid& grid, const plan::Program& program, dist::Session& session) {
  const std::vector<std::string> hashes = session.gather(plan::program_hash(program));
  for (std::size_t rank = 0; rank < hashes.size(); ++rank) {
    const int stage = grid.coordinates_of(static_cast<int>(rank)).pipeline;
    const int first = grid.rank_of({0, stage, 0});
    expect(hashes[rank] == hashes[static_cast<std::size_t>(first)],
           "the ranks of one stage planned different Programs");
  }
}

}  // namespace garonne::train
