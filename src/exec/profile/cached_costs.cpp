#include "exec/profile/cached_costs.hpp"

#include <fmt/format.h>
#include <torch/version.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/cache_folder.hpp"
#include "base/counted.hpp"
#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/json_input.hpp"
#include "base/printable.hpp"
#include "kernels/session.hpp"
#include "nn/gemm/product.hpp"

namespace garonne::exec {
namespace {

std::string cost_table_name(const std::string& machine) {
  return fmt::format("costs-{}.json", hash_text(machine).substr(0, 16));
}

}  // namespace

std::string machine_text(int threads) {
  std::string processor = "unknown processor";
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    processor = line.substr(line.find(':') + 2);
    break;
  }
  // Virtual machines of several processors may give them one name.
  return fmt::format("{}, {}{}, {}, torch {}, profile 11", processor, kernels::instruction_set(),
                     nn::multiplies_bfloat16() ? "" : " without bfloat16",
                     counted(threads, "thread"), TORCH_VERSION);
}

std::string gpu_machine_text(const std::string& name) {
  return fmt::format("{}, torch {}, profile 10", name, TORCH_VERSION);
}

std::string cost_table_path(const std::string& machine) {
  return cache_folder() + "/" + cost_table_name(machine);
}

plan::CostTable load_cached_costs(int threads,
                                  const std::function<void(const std::string&)>& warn) {
  return load_cached_costs(machine_text(threads), warn);
}

plan::CostTable load_cached_costs(const std::string& machine,
                                  const std::function<void(const std::string&)>& warn) {
  plan::CostTable empty;
  empty.machine = machine;
  const std::string folder = cache_folder();
  if (const std::string refusal = cache_refusal(folder); !refusal.empty()) {
    warn(
        fmt::format("{} {}: no profile is read from there or kept there; GARONNE_CACHE names "
                    "another folder",
                    printable(folder), refusal));
    return empty;
  }
  const std::string path = cost_table_path(empty.machine);
  const auto text = read_cache_file(folder, cost_table_name(empty.machine));
  if (!text) return empty;
  try {
    const nlohmann::json json = parse_json(*text, path);
    // A table of another version is no mistake.
    if (json.is_object() && json.contains("version") && json["version"].is_number_integer() &&
        json["version"] != plan::cost_table_version)
      return empty;
    plan::CostTable table = plan::cost_table_from_json(json, path);
    nn::Products::from_json(table.products);
    return table.machine == empty.machine ? table : empty;
  } catch (const ConfigError& damaged) {
    warn(fmt::format("the profile {} is ignored: {}", printable(path), damaged.what()));
    return empty;
  }
}

bool save_cached_costs(const plan::CostTable& table) {
  return write_cache_file(cache_folder(), cost_table_name(table.machine),
                          plan::to_json(table).dump(1) + "\n");
}

}  // namespace garonne::exec
