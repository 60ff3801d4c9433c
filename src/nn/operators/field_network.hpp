// What the author of an operator writes: a network that adds its parameters once and its nodes for
// each application of a rollout. A new kind is one file, which ends in its row, and one line of the
// registry (nn/model_kind.cpp).
//
// Values between nodes are [batch · points, channels], row-major, points in the order of the grid.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/fields/field_model.hpp"
#include "nn/model_kind.hpp"

namespace garonne::nn {

// Channels of a network's input that come from one value.
struct FieldPart {
  int source = 0;  // which of FieldWindow::values
  // [samples, channels, points] as loaded, for all members of a sample, else [batch · points, …].
  bool channels_first = false;
  bool differentiable = true;      // false of what is loaded and of steps without gradients
  std::int64_t first_channel = 0;  // in the source
  std::int64_t source_channels = 0;
  std::int64_t channels = 0;
};

// Where the input of one application comes from: the loaded input, predictions of earlier steps, or
// some of each.
struct FieldWindow {
  std::vector<int> values;       // value indices, each once
  std::vector<FieldPart> parts;  // in the order of the input's channels
};

class FieldNetwork {
 public:
  virtual ~FieldNetwork() = default;

  // Adds the nodes of one application in blocks of its own choice (the caller begins a new one
  // before each application); all names begin with `prefix`. Returns the value index of the
  // prediction, [batch · points, target_channels].
  virtual int apply(const std::string& prefix, const FieldWindow& window) = 0;
};

struct FieldNetworkArguments {
  ModelBuilder& builder;  // outlives the network
  const RunConfig::Model& keys;
  const FieldShape& shape;  // of the member whose part is made
  std::int64_t batch = 0;   // fields at once: all members of all samples
};

// The row of a kind on fields; `network` and `rows` as in ModelKind.
ModelKind field_kind(const std::string& name, std::vector<std::string> keys,
                     std::unique_ptr<FieldNetwork> (*network)(const FieldNetworkArguments&),
                     FieldRows (*rows)(const RunConfig::Model&, const FieldShape&,
                                       const FieldCut&));

// Throws ConfigError (grid.tensor) unless `fits` the cut's members: `why`, and the nearest numbers
// that fit.
void check_members(const FieldCut& cut, const std::string& why,
                   const std::function<bool(std::int64_t members)>& fits);

}  // namespace garonne::nn
