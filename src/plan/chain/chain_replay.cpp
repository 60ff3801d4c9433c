#include "plan/chain/chain_replay.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace garonne::plan {
namespace {

class Walk {
 public:
  explicit Walk(const Chain& chain)
      : chain_(chain),
        blocks_(static_cast<int>(chain.blocks.size())),
        plain_(chain.blocks.size() + 1, false),
        kept_option_(chain.blocks.size(), -1),
        backwards_(chain.blocks.size(), 0),
        gradient_(blocks_) {
    plain_[0] = true;
    live_ = value_bytes(0) + value_bytes(blocks_);
    result_.peak_bytes = live_;
  }

  void run(const ChainOperation& operation) {
    if (operation.kind == ChainOperationKind::Drop) {
      if (operation.block < 0 || operation.block > blocks_) fail("there is no such value");
      if (!plain_[at(operation.block)]) fail("the value is not live by itself");
      free_plain(operation.block);
      return;
    }
    if (operation.block < 0 || operation.block >= blocks_) fail("there is no such block");
    switch (operation.kind) {
      case ChainOperationKind::ForwardDiscard:
      case ChainOperationKind::ForwardCheckpoint:
        forward(operation.block, operation.kind == ChainOperationKind::ForwardDiscard);
        break;
      case ChainOperationKind::ForwardKeep:
        forward_keep(operation.block, operation.option);
        break;
      default:
        backward(operation.block);
    }
  }

  ChainReplay finish() {
    if (gradient_ != 0) fail("gradient 0 is never made");
    for (const int count : backwards_) {
      if (count != 1) fail("a block has not run backward exactly once");
    }
    return result_;
  }

  void next() { ++place_; }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  [[noreturn]] void fail(const char* reason) const { throw ChainReplayError(place_, reason); }

  std::int64_t value_bytes(int value) const {
    return value == 0 ? chain_.input_bytes : chain_.blocks[at(value - 1)].output_bytes;
  }
  bool value_is_live(int value) const {
    return plain_[at(value)] || (value > 0 && kept_option_[at(value - 1)] >= 0);
  }
  void expect_value(int value) const {
    if (!value_is_live(value)) fail("its input value is not live");
  }
  void spend(std::int64_t more_bytes, double seconds) {
    result_.peak_bytes = std::max(result_.peak_bytes, live_ + more_bytes);
    result_.seconds += seconds;
  }
  void free_plain(int value) {
    if (plain_[at(value)]) live_ -= value_bytes(value);
    plain_[at(value)] = false;
  }

  void forward(int block, bool discard) {
    expect_value(block);
    if (value_is_live(block + 1)) fail("its output value is live already");
    const ChainBlock& source = chain_.blocks[at(block)];
    spend(source.output_bytes + source.forward.transient_bytes, source.forward.seconds);
    plain_[at(block + 1)] = true;
    live_ += source.output_bytes;
    if (discard) free_plain(block);
  }

  void forward_keep(int block, int option) {
    const ChainBlock& source = chain_.blocks[at(block)];
    if (option < 0 || at(option) >= source.options.size()) fail("the block has no such option");
    expect_value(block);
    if (kept_option_[at(block)] >= 0) fail("the block's saved bytes are live already");
    if (plain_[at(block + 1)]) fail("its output value is live already");
    const ChainOption& kept = source.options[at(option)];
    spend(kept.saved_bytes + kept.forward.transient_bytes, kept.forward.seconds);
    kept_option_[at(block)] = option;
    live_ += kept.saved_bytes;
  }

  void backward(int block) {
    if (gradient_ != block + 1) fail("the gradient of its output is not live");
    if (kept_option_[at(block)] < 0) fail("the block's saved bytes are not live");
    expect_value(block);
    const ChainBlock& source = chain_.blocks[at(block)];
    const ChainOption& kept = source.options[at(kept_option_[at(block)])];
    const std::int64_t made = value_bytes(block) + source.gradient_bytes;
    spend(made + kept.backward.transient_bytes, kept.backward.seconds);
    live_ += made - value_bytes(block + 1) - kept.saved_bytes;
    free_plain(block);
    kept_option_[at(block)] = -1;
    gradient_ = block;
    ++backwards_[at(block)];
  }

  const Chain& chain_;
  int blocks_;
  std::vector<bool> plain_;
  std::vector<int> kept_option_;
  std::vector<int> backwards_;
  int gradient_;  // the value whose gradient is live
  std::int64_t live_ = 0;
  std::size_t place_ = 0;  // of the operation in the list
  ChainReplay result_;
};

}  // namespace

ChainReplayError::ChainReplayError(std::size_t operation, const std::string& reason)
    : Error(ExitCode::Usage, fmt::format("operation {}: {}", operation, reason)),
      operation_(operation) {}

ChainReplay replay_chain(const Chain& chain, const std::vector<ChainOperation>& operations) {
  Walk walk(chain);
  for (const auto& operation : operations) {
    walk.run(operation);
    walk.next();
  }
  return walk.finish();
}

}  // namespace garonne::plan
