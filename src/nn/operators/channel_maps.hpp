// Linear maps over channels, the same at every point, of which networks of fields are made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/layers/layers.hpp"
#include "nn/model.hpp"

namespace garonne::nn {

struct ChannelMap {
  int weight = -1;  // parameter indices
  int bias = -1;    // or none
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;

  std::vector<int> parameters() const {
    return bias < 0 ? std::vector<int>{weight} : std::vector<int>{weight, bias};
  }
};

// Adds their parameters, once, and their nodes, for each application; these return value indices.
class ChannelMaps {
 public:
  explicit ChannelMaps(ModelBuilder& builder) : builder_(builder) {}

  // `name`.weight [outputs, inputs], normal with `deviation`, and, where there is one, `name`.bias
  // [outputs], 0.
  ChannelMap add(const std::string& name, std::int64_t outputs, std::int64_t inputs,
                 double deviation, bool bias = true);
  // With a bias. PyTorch draws both uniformly up to 1/√inputs; normal with that variance here.
  ChannelMap add_default(const std::string& name, std::int64_t outputs, std::int64_t inputs);

  // x [rows, inputs] -> [rows, outputs]
  int apply(const std::string& name, const ChannelMap& map, Rows rows, int x);
  // x [rows, channels] -> the same shape; the exact GELU
  int gelu(const std::string& name, std::int64_t rows, std::int64_t channels, int x);

 private:
  ModelBuilder& builder_;
};

}  // namespace garonne::nn
