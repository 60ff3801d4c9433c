#include "plan/chain/rotor_model.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"

namespace garonne::plan {

RotorModel::RotorModel(const Chain& chain) : blocks_(static_cast<int>(chain.blocks.size())) {
  expect(blocks_ > 0, "a chain has blocks");
  value_.push_back(chain.input_bytes);
  gradient_sum_.push_back(0);
  pass_sum_.push_back(0);
  for (const auto& block : chain.blocks) {
    expect(!block.options.empty(), "a block has options");
    const std::int64_t input = value_.back();
    value_.push_back(block.output_bytes);
    gradient_sum_.push_back(gradient_sum_.back() + block.gradient_bytes);
    pass_need_.push_back(input + block.output_bytes + block.forward.transient_bytes);
    pass_sum_.push_back(pass_sum_.back() + block.forward.seconds);
    double least = std::numeric_limits<double>::infinity();
    for (const auto& option : block.options)
      least = std::min(least, option.forward.seconds + option.backward.seconds);
    least_seconds_ += least;
    auto& options = options_.emplace_back();
    for (const auto& option : block.options) {
      options.push_back({option.saved_bytes, option.saved_bytes + option.forward.transient_bytes,
                         option.saved_bytes + block.output_bytes + input + block.gradient_bytes +
                             option.backward.transient_bytes,
                         option.forward.seconds + option.backward.seconds - least});
    }
  }
}

}  // namespace garonne::plan
