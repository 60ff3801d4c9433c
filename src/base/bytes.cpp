#include "base/bytes.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace garonne {

std::string format_bytes(std::int64_t bytes) {
  constexpr std::array<const char*, 6> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (std::abs(amount) >= 1024.0 && unit + 1 < units.size()) {
    amount /= 1024.0;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", amount, units[unit]);
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 12> units = {{
      {"", 1.0},
      {"B", 1.0},
      {"kB", 1e3},
      {"KB", 1e3},
      {"MB", 1e6},
      {"GB", 1e9},
      {"TB", 1e12},
      {"KiB", 1024.0},
      {"MiB", 1048576.0},
      {"GiB", 1073741824.0},
      {"TiB", 1099511627776.0},
      {"kiB", 1024.0},
  }};
  const auto first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return std::nullopt;
  text.remove_prefix(first);
  text = text.substr(0, text.find_last_not_of(' ') + 1);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return std::nullopt;
  std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  const auto unit_start = suffix.find_first_not_of(' ');
  suffix = unit_start == std::string_view::npos ? std::string_view() : suffix.substr(unit_start);
  for (const auto& [name, factor] : units) {
    if (suffix != name) continue;
    const double bytes = number * factor;
    if (bytes > 9e18 || (suffix.empty() && bytes != std::floor(bytes))) return std::nullopt;
    return static_cast<std::int64_t>(std::llround(bytes));
  }
  return std::nullopt;
}

}  // namespace garonne
