#include "device/visible_devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

#include "base/error.hpp"

namespace garonne::device {
namespace {

constexpr const char* variable = "CUDA_VISIBLE_DEVICES";

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

VisibleDevice read_entry(std::string_view entry, std::string_view value) {
  if (entry.starts_with("MIG-")) {
    throw ConfigError(variable, std::string(value),
                      fmt::format("\"{}\" is an instance of a device (MIG): ranks are given whole "
                                  "devices, which they know by a PCI address that all instances of "
                                  "one share. Name devices by index or by GPU- UUID, or have their "
                                  "division switched off",
                                  entry));
  }
  if (entry.starts_with("GPU-")) {
    const std::string_view digits = entry.substr(4);
    const bool right = !digits.empty() && std::ranges::all_of(digits, [](unsigned char letter) {
      return std::isxdigit(letter) != 0 || letter == '-';
    });
    if (right) return {-1, std::string(entry)};
  }
  VisibleDevice device;
  const auto [end, error] =
      std::from_chars(entry.data(), entry.data() + entry.size(), device.index);
  if (error != std::errc() || end != entry.data() + entry.size() || device.index < 0) {
    throw ConfigError(variable, std::string(value),
                      fmt::format("\"{}\" is neither the index of a device nor a GPU- UUID. Give "
                                  "a list such as \"0,1\", or unset it to have all devices",
                                  entry));
  }
  return device;
}

}  // namespace

std::optional<std::vector<VisibleDevice>> read_visible_devices(const char* value) {
  if (value == nullptr) return std::nullopt;
  std::vector<VisibleDevice> devices;
  std::string_view rest = value;
  if (trimmed(rest).empty()) return devices;
  while (true) {
    const auto comma = rest.find(',');
    const std::string_view entry = trimmed(rest.substr(0, comma));
    const VisibleDevice device = read_entry(entry, value);
    if (std::ranges::find(devices, device) != devices.end()) {
      throw ConfigError(variable, value,
                        fmt::format("\"{}\" stands there twice, which leaves no device visible. "
                                    "Name each device once",
                                    entry));
    }
    devices.push_back(device);
    if (comma == std::string_view::npos) return devices;
    rest.remove_prefix(comma + 1);
  }
}

void check_visible_devices(const char* value, int count) {
  const auto named = read_visible_devices(value);
  if (named && static_cast<int>(named->size()) != count) {
    const std::string list = value;
    if (named->empty()) {
      throw ConfigError(variable, list,
                        fmt::format("an empty list hides all devices, but the CUDA runtime sees "
                                    "{}. Set it before the program starts",
                                    count));
    }
    if (count > static_cast<int>(named->size())) {
      throw ConfigError(variable, list,
                        fmt::format("it names {} devices, but the CUDA runtime sees {}. Set it "
                                    "before the program starts",
                                    named->size(), count));
    }
    const VisibleDevice& missing = (*named)[static_cast<std::size_t>(count)];
    throw ConfigError(
        variable, list,
        fmt::format("it names {} devices, of which the CUDA runtime sees {}: entry {} ({}) is no "
                    "device of this node. nvidia-smi -L lists those that there are",
                    named->size(), count, count + 1,
                    missing.index >= 0 ? std::to_string(missing.index) : missing.uuid));
  }
  if (count > 0) return;
  if (named) {
    throw ConfigError(variable, value,
                      "an empty list hides all devices. Unset it, or set run.device to \"cpu\"");
  }
  throw ConfigError("run.device", "cuda",
                    "the CUDA runtime sees no device on this node. Ask the job scheduler for "
                    "devices, or set run.device to \"cpu\"");
}

}  // namespace garonne::device
