#include "plan/chain/sample_chain.hpp"

#include <random>

namespace garonne::plan {

Chain sample_chain(int blocks, int options) {
  std::mt19937_64 random(1);
  const auto between = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
  };
  const auto bytes = [&](double low, double high) {
    return static_cast<std::int64_t>(between(low, high));
  };
  Chain chain;
  chain.input_bytes = 1'000'000;
  for (int i = 0; i < blocks; ++i) {
    ChainBlock block;
    block.name = "block." + std::to_string(i);
    block.output_bytes = i + 1 == blocks ? 0 : bytes(5e5, 2e6);
    block.forward = {between(0.5, 2), bytes(0, 1e6)};
    for (int k = 0; k < options; ++k) {
      const double share = static_cast<double>(options - k) / options;
      ChainOption option;
      option.name = "option." + std::to_string(k);
      option.saved_bytes = block.output_bytes + bytes(1e6 * share, 2e7 * share);
      option.forward = {block.forward.seconds, bytes(0, 1e6)};
      option.backward = {block.forward.seconds * (2.8 - 0.8 * share), bytes(0, 2e6)};
      block.options.push_back(std::move(option));
    }
    chain.blocks.push_back(std::move(block));
  }
  return chain;
}

}  // namespace garonne::plan
