#include "data/fields/channel_units.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <system_error>

namespace garonne::data {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

// The short name of a unit that has long ones.
std::string short_name(const std::string& name) {
  static const std::map<std::string, std::string> names = {
      {"kelvin", "K"},        {"kelvins", "K"},
      {"degk", "K"},          {"deg_k", "K"},
      {"degree_kelvin", "K"}, {"degrees_kelvin", "K"},
      {"celsius", "degC"},    {"degc", "degC"},
      {"deg_c", "degC"},      {"degree_c", "degC"},
      {"degrees_c", "degC"},  {"degree_celsius", "degC"},
      {"°c", "degC"},         {"degrees_celsius", "degC"},
      {"pascal", "Pa"},       {"pascals", "Pa"},
      {"hectopascal", "hPa"}, {"hectopascals", "hPa"},
      {"mbar", "hPa"},        {"millibar", "hPa"},
      {"millibars", "hPa"},   {"mb", "hPa"},
      {"percent", "%"},       {"meter", "m"},
      {"meters", "m"},        {"metre", "m"},
      {"metres", "m"},        {"second", "s"},
      {"seconds", "s"},       {"sec", "s"}};
  const auto found = names.find(lower(name));
  return found == names.end() ? name : found->second;
}

// Powers of the units that a product is made of; what is no such product is a name of its own.
std::map<std::string, int> powers_of(const std::string& units) {
  std::map<std::string, int> powers;
  const std::string whole = lower(units);
  if (whole == "1" || whole == "-" || whole == "dimensionless" || whole == "fraction" ||
      whole == "(0 - 1)" || whole == "none") {
    return powers;
  }
  std::size_t place = 0;
  int sign = 1;
  while (place < units.size()) {
    const char letter = units[place];
    if (letter == ' ' || letter == '*' || letter == '.' || letter == '^') {
      ++place;
      continue;
    }
    if (letter == '/') {
      sign = -1;
      ++place;
      continue;
    }
    const std::size_t end =
        std::min(units.find_first_of(" */.^+-0123456789", place + 1), units.size());
    const std::string name = short_name(units.substr(place, end - place));
    place = end;
    // A power right after the name: "s-1", "s**-1", "s^2".
    std::size_t power = place;
    while (power < units.size() && (units[power] == '*' || units[power] == '^')) ++power;
    int value = 1;
    if (power < units.size() && (power == place || units[power] != ' ')) {
      const std::size_t digits = units[power] == '+' ? power + 1 : power;
      const auto [after, error] =
          std::from_chars(units.data() + digits, units.data() + units.size(), value);
      if (error == std::errc()) {
        place = static_cast<std::size_t>(after - units.data());
      } else {
        value = 1;
      }
    }
    powers[name] += std::clamp(value, -1000, 1000) * sign;
    sign = 1;
  }
  std::erase_if(powers, [](const auto& unit) { return unit.second == 0; });
  return powers;
}

}  // namespace

bool same_units(const std::string& one, const std::string& other) {
  return one == other || powers_of(one) == powers_of(other);
}

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

}  // namespace garonne::data
