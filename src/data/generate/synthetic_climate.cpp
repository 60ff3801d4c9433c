#include "data/generate/synthetic_climate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.hpp"
#include "data/generate/normal_numbers.hpp"

namespace garonne::data {
namespace {

using std::numbers::pi;
constexpr int pressures[] = {50, 100, 150, 200, 250, 300, 400, 500, 600, 700, 850, 925, 1000};

// Height in metres and temperature in K of the standard atmosphere.
double standard_height(double pressure) {
  if (pressure > 226.32) return 44330.8 * (1 - std::pow(pressure / 1013.25, 0.190263));
  return 11000 + 6341.6 * std::log(226.32 / pressure);
}

double standard_temperature(double pressure) {
  return std::max(216.65, 288.15 - 6.5e-3 * standard_height(pressure));
}

std::vector<ChannelClimate> make_channels() {
  std::vector<ChannelClimate> channels = {
      {"u10m", 0, 2, 1, 5, 4, 1.5},           {"v10m", 0, 0, 0, 5, 4, 1.5},
      {"u100m", 0, 3, 1, 7, 5, 1.5},          {"v100m", 0, 0, 0, 7, 5, 1.5},
      {"t2m", 279, -42, -11, 5, 4, 4},        {"sp", 9.67e4, -1.5e3, 100, 900, 5, 3},
      {"msl", 1.011e5, -400, 150, 800, 5, 3}, {"tcwv", 18, -28, -5, 7, 5, 2, 0},
  };
  for (const char* kind : {"u", "v", "z", "t", "q"}) {
    for (const int level : pressures) {
      const double pressure = level;
      // Largest at the jet near 250 hPa.
      const double aloft = std::exp(-std::pow(std::log(pressure / 250) / 1.0, 2));
      ChannelClimate channel;
      channel.name = fmt::format("{}{}", kind, level);
      channel.drift = 3 + 9 * aloft;
      switch (kind[0]) {
        case 'u':
          channel.base = 1 + 11 * aloft;
          channel.gradient = 4 * aloft;
          channel.season = -3 * aloft;
          channel.deviation = 5 + 11 * aloft;
          break;
        case 'v':
          channel.deviation = 4 + 9 * aloft;
          channel.memory = 1.5;
          break;
        case 'z':
          channel.base = 9.80665 * standard_height(pressure);
          channel.gradient = -9.80665 * (120 + 900 * aloft);
          channel.season = -9.80665 * (20 + 130 * aloft);
          channel.deviation = 9.80665 * (50 + 110 * aloft);
          channel.memory = 4;
          break;
        case 't':
          channel.base = standard_temperature(pressure);
          channel.gradient = pressure > 300 ? -38 : 6;
          channel.season = pressure > 300 ? -8 : -3;
          channel.deviation = 4;
          break;
        default:
          channel.base = pressure > 200 ? 8e-3 * std::pow(pressure / 1000, 3) : 3e-6;
          channel.gradient = -1.1 * channel.base;
          channel.season = -0.2 * channel.base;
          channel.deviation = 0.35 * channel.base;
          channel.floor = 0;
          channel.memory = 2;
      }
      channels.push_back(channel);
    }
  }
  return channels;
}

}  // namespace

const std::vector<ChannelClimate>& era5_channels() {
  static const std::vector<ChannelClimate> channels = make_channels();
  return channels;
}

std::vector<ChannelClimate> choose_channels(const std::vector<std::string>& names) {
  const std::vector<ChannelClimate>& all = era5_channels();
  if (names.empty()) return all;
  std::vector<ChannelClimate> chosen;
  for (const std::string& name : names) {
    const auto has_name = [&](const ChannelClimate& channel) { return channel.name == name; };
    const auto found = std::find_if(all.begin(), all.end(), has_name);
    if (found == all.end()) {
      throw ConfigError(
          "channels", name,
          "is unknown; known are u10m, v10m, u100m, v100m, t2m, sp, msl, tcwv, and u, "
          "v, z, t, q at 50 100 150 200 250 300 400 500 600 700 850 925 1000 hPa, as "
          "z500");
    }
    if (std::any_of(chosen.begin(), chosen.end(), has_name)) {
      throw ConfigError("channels", name, "is given twice");
    }
    chosen.push_back(*found);
  }
  return chosen;
}

ChannelWeather::ChannelWeather(const ChannelClimate& climate, std::uint64_t number, PhiloxKey key,
                               std::int64_t degrees, double frame_days)
    : climate_(climate),
      number_(number),
      key_(key),
      degrees_(degrees),
      frame_days_(frame_days),
      coefficients_(static_cast<std::size_t>(degrees * (degrees + 1) / 2)) {
  double total = 0;
  for (std::int64_t l = 0; l < degrees; ++l) {
    const double power = l == 0 ? 0 : std::pow(static_cast<double>(l * (l + 1)) + 16, -2);
    total += static_cast<double>(2 * l + 1) * power / (4 * pi);
    deviation_.push_back(std::sqrt(power));
    const double memory = climate.memory / (1 + static_cast<double>(l) / 4);
    correlation_.push_back(std::exp(-frame_days / memory));
  }
  for (double& deviation : deviation_) deviation *= climate.deviation / std::sqrt(total);
}

void ChannelWeather::advance() {
  ++frame_;
  const double turn = -climate_.drift * frame_days_ * pi / 180;
  for (std::int64_t m = 0; m < degrees_; ++m) {
    const Complex drift = std::polar(1.0, turn * static_cast<double>(m));
    for (std::int64_t l = std::max<std::int64_t>(m, 1); l < degrees_; ++l) {
      const auto degree = static_cast<std::size_t>(l);
      const auto [real, imaginary] = normal_pair(key_, static_cast<std::uint64_t>(frame_), number_,
                                                 static_cast<std::uint64_t>(l << 20 | m));
      const Complex fresh = m == 0 ? Complex(real, 0) : std::sqrt(0.5) * Complex(real, imaginary);
      const double kept = frame_ == 0 ? 0 : correlation_[degree];
      Complex& coefficient = coefficients_[static_cast<std::size_t>(legendre_row(degrees_, l, m))];
      coefficient =
          kept * drift * coefficient + std::sqrt(1 - kept * kept) * deviation_[degree] * fresh;
    }
  }
}

void ChannelWeather::write(SphereTransform& transform, double day,
                           std::vector<double>& field) const {
  field.resize(static_cast<std::size_t>(transform.points()));
  transform.synthesise(coefficients_, field);
  const SphereGrid& grid = transform.grid();
  const double season = climate_.season * std::cos(2 * pi * (day - 15) / 365.25);
  for (std::int64_t row = 0; row < grid.latitudes; ++row) {
    const double sine = grid.cosines[static_cast<std::size_t>(row)];
    const double mean = climate_.base + climate_.gradient * (sine * sine - 1.0 / 3) + season * sine;
    for (std::int64_t column = 0; column < grid.longitudes; ++column) {
      double& value = field[static_cast<std::size_t>(row * grid.longitudes + column)];
      value = std::max(value + mean, climate_.floor);
    }
  }
}

}  // namespace garonne::data
