#include "data/fields/channel_units.hpp"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

namespace garonne::data {

std::string usual_units(const std::string& channel) {
  static const std::map<std::string, std::string> at_surface = {
      {"t2m", "K"},         {"2t", "K"},          {"d2m", "K"},       {"2d", "K"},
      {"sst", "K"},         {"skt", "K"},         {"u10m", "m s-1"},  {"10u", "m s-1"},
      {"v10m", "m s-1"},    {"10v", "m s-1"},     {"u100m", "m s-1"}, {"100u", "m s-1"},
      {"v100m", "m s-1"},   {"100v", "m s-1"},    {"msl", "Pa"},      {"mslp", "Pa"},
      {"sp", "Pa"},         {"tp", "m"},          {"tcwv", "kg m-2"}, {"geopotential", "m2 s-2"},
      {"vorticity", "s-1"}, {"divergence", "s-1"}};
  // Letter and pressure in hPa.
  static const std::map<char, std::string> on_levels = {
      {'t', "K"}, {'u', "m s-1"}, {'v', "m s-1"}, {'z', "m2 s-2"}, {'q', "kg kg-1"}, {'r', "%"}};
  const auto named = at_surface.find(channel);
  if (named != at_surface.end()) return named->second;
  const bool level = channel.size() > 1 && channel.size() <= 5 &&
                     std::all_of(channel.begin() + 1, channel.end(),
                                 [](unsigned char digit) { return std::isdigit(digit) != 0; });
  const auto lettered = on_levels.find(channel.empty() ? ' ' : channel[0]);
  return level && lettered != on_levels.end() ? lettered->second : "";
}

namespace {

std::string symbol_of(const std::string& word) {
  static const std::map<std::string, std::string> others = {{"kelvin", "K"},
                                                            {"Kelvin", "K"},
                                                            {"degK", "K"},
                                                            {"deg_K", "K"},
                                                            {"degree_K", "K"},
                                                            {"degreeK", "K"},
                                                            {"degrees_K", "K"},
                                                            {"degC", "degC"},
                                                            {"deg_C", "degC"},
                                                            {"degree_C", "degC"},
                                                            {"degrees_C", "degC"},
                                                            {"Celsius", "degC"},
                                                            {"C", "degC"},
                                                            {"celsius", "degC"},
                                                            {"degree_Celsius", "degC"},
                                                            {"°C", "degC"},
                                                            {"degreeC", "degC"},
                                                            {"degree_celsius", "degC"},
                                                            {"metre", "m"},
                                                            {"metres", "m"},
                                                            {"meter", "m"},
                                                            {"meters", "m"},
                                                            {"second", "s"},
                                                            {"seconds", "s"},
                                                            {"sec", "s"},
                                                            {"pascal", "Pa"},
                                                            {"Pascal", "Pa"},
                                                            {"pascals", "Pa"},
                                                            {"millibar", "hPa"},
                                                            {"mbar", "hPa"},
                                                            {"mb", "hPa"},
                                                            {"percent", "%"},
                                                            {"joule", "J"},
                                                            {"watt", "W"},
                                                            {"1", ""},
                                                            {"dimensionless", ""},
                                                            {"(0 - 1)", ""},
                                                            {"unitless", ""}};
  const auto found = others.find(word);
  return found == others.end() ? word : found->second;
}

// Symbol → power.
std::map<std::string, int> powers_of(const std::string& text) {
  std::map<std::string, int> powers;
  if (const std::string whole = symbol_of(text); whole != text) {
    if (!whole.empty()) powers[whole] = 1;
    return powers;
  }
  const auto is_digit = [](char letter) { return letter >= '0' && letter <= '9'; };
  int sign = 1;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '/') sign = -1;
    const bool between = std::string_view(" */.^").find(text[at]) != std::string_view::npos;
    if (between) {
      ++at;
      continue;
    }
    std::size_t end = at;
    if (is_digit(text[at])) {
      // A factor, as in "10-2 kg".
      end = std::min(text.find_first_of(" */", at), text.size());
      const std::string factor = symbol_of(text.substr(at, end - at));
      if (!factor.empty()) powers[factor] += sign;
      sign = 1;
      at = end;
      continue;
    }
    while (end < text.size() &&
           std::string_view(" */.^+-").find(text[end]) == std::string_view::npos &&
           (end == at || !is_digit(text[end])))
      ++end;
    if (end == at) end = at + 1;  // a sign that stands alone
    const std::string symbol = symbol_of(text.substr(at, end - at));
    std::size_t number = end;
    while (number < text.size() && (text[number] == '*' || text[number] == '^')) ++number;
    int power = 1;
    const bool negative = number < text.size() && text[number] == '-';
    if (number < text.size() && (negative || text[number] == '+')) ++number;
    if (number < text.size() && is_digit(text[number])) {
      power = 0;
      for (; number < text.size() && is_digit(text[number]); ++number)
        power = std::min(power * 10 + (text[number] - '0'), 1000);
      if (negative) power = -power;
      end = number;
    }
    if (!symbol.empty()) powers[symbol] += sign * power;
    sign = 1;
    at = end;
  }
  std::erase_if(powers, [](const auto& entry) { return entry.second == 0; });
  return powers;
}

}  // namespace

bool same_units(const std::string& one, const std::string& other) {
  if (one.empty() || other.empty() || one == other) return true;
  return powers_of(one) == powers_of(other);
}

}  // namespace garonne::data
