#include "nn/operators/channel_maps.hpp"

#include <cmath>

#include "nn/fields/field_layers.hpp"

namespace garonne::nn {

ChannelMap ChannelMaps::add(const std::string& name, std::int64_t outputs, std::int64_t inputs,
                            double deviation, bool bias) {
  ChannelMap map{builder_.add_parameter(name + ".weight", {outputs, inputs}, {deviation, 0}), -1,
                 outputs, inputs};
  if (bias) map.bias = builder_.add_parameter(name + ".bias", {outputs}, {0, 0});
  return map;
}

ChannelMap ChannelMaps::add_default(const std::string& name, std::int64_t outputs,
                                    std::int64_t inputs) {
  const double deviation = 1 / std::sqrt(3.0 * static_cast<double>(inputs));
  ChannelMap map = add(name, outputs, inputs, deviation, /*bias=*/false);
  map.bias = builder_.add_parameter(name + ".bias", {outputs}, {deviation, 0});
  return map;
}

int ChannelMaps::apply(const std::string& name, const ChannelMap& map, Rows rows, int x) {
  return builder_.add_node(name, make_linear(rows, map.inputs, map.outputs, map.bias >= 0), {x},
                           map.parameters(), {rows.count(), map.outputs});
}

int ChannelMaps::gelu(const std::string& name, std::int64_t rows, std::int64_t channels, int x) {
  return builder_.add_node(name, make_exact_gelu(rows, channels), {x}, {}, {rows, channels});
}

}  // namespace garonne::nn
