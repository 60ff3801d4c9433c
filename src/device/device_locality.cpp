#include "device/device_locality.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/lower_case.hpp"

namespace garonne::device {
namespace {

// The system writes addresses in lower case, with four digits of domain.
std::string name_in_system(std::string bus_id) {
  bus_id = lower_case(std::move(bus_id));
  const auto colon = bus_id.find(':');
  if (colon != std::string::npos && colon > 4 && bus_id.find_first_not_of('0') >= colon - 4) {
    bus_id.erase(0, colon - 4);
  }
  return bus_id;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<int> number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// More would be no list of cores but a mistake.
constexpr int most_cores = 1 << 20;

}  // namespace

DeviceLocality locality_of(const std::string& bus_id, const std::string& system_folder) {
  const std::string folder =
      fmt::format("{}/bus/pci/devices/{}/", system_folder, name_in_system(bus_id));
  // The system says -1 where it does not know.
  return {number(first_line(folder + "numa_node")), first_line(folder + "local_cpulist")};
}

std::vector<int> cores_of_list(const std::string& list) {
  std::vector<int> cores;
  std::string_view rest = list;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const std::string_view entry = rest.substr(0, comma);
    const auto dash = entry.find('-');
    const auto first = number(entry.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number(entry.substr(dash + 1));
    expect(first && last && *first <= *last && *last < most_cores,
           fmt::format("\"{}\" is no list of cores", list));
    for (int core = *first; core <= *last; ++core) cores.push_back(core);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  std::ranges::sort(cores);
  const auto twice = std::ranges::unique(cores);
  cores.erase(twice.begin(), twice.end());
  return cores;
}

}  // namespace garonne::device
