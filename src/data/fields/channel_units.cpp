#include "data/fields/channel_units.hpp"

#include <algorithm>
#include <cctype>
#include <map>

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

}  // namespace garonne::data
