#include "plan/chain/chain_replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/index.hpp"

namespace garonne::plan {
namespace {

// A value by itself, the saved bytes of a block, or its weights.
struct HeldItem {
  bool live = false;
  bool below = false;            // whole, so that it can come back
  bool goes = false;             // a copy out of it is not waited for
  bool comes = false;            // nor one in
  double copied_at = 0;          // the end of that copy
  std::int64_t below_bytes = 0;  // taken there

  bool is_copied() const { return goes || comes; }
  bool is_there() const { return live && !comes; }
};

class ChainWalk {
 public:
  explicit ChainWalk(const Chain& chain)
      : chain_(chain),
        blocks_(static_cast<int>(chain.blocks.size())),
        values_(chain.blocks.size() + 1),
        saved_(chain.blocks.size()),
        weights_(chain.blocks.size()),
        option_(chain.blocks.size(), -1),
        option_below_(chain.blocks.size(), -1),
        weights_at_start_(chain.blocks.size(), true),
        backwards_(chain.blocks.size(), 0),
        gradient_(blocks_) {
    values_[0].live = true;
    live_ = chain_value_bytes(chain, 0) + chain_value_bytes(chain, blocks_);
    for (int block = 0; block < blocks_; ++block) {
      weights_[as_index(block)].live = true;
      weights_[as_index(block)].below = chain.links.has_value();
      live_ += chain.blocks[as_index(block)].weight_bytes;
    }
  }

  void run(const ChainOperation& operation) {
    // Weights that are dropped first of all are below at the start.
    if (operation.kind == ChainOperationKind::Drop && operation.item == ChainItem::Weights) {
      drop(operation.item, operation.block);
      if (!started_) weights_at_start_[as_index(operation.block)] = false;
      return;
    }
    start();
    during_ = live_;
    switch (operation.kind) {
      case ChainOperationKind::ForwardDiscard:
      case ChainOperationKind::ForwardCheckpoint:
        expect_block(operation.block);
        forward(operation.block, operation.kind == ChainOperationKind::ForwardDiscard);
        break;
      case ChainOperationKind::ForwardKeep:
        expect_block(operation.block);
        forward_keep(operation.block, operation.option);
        break;
      case ChainOperationKind::Backward:
        expect_block(operation.block);
        backward(operation.block);
        break;
      case ChainOperationKind::Drop:
        drop(operation.item, operation.block);
        break;
      case ChainOperationKind::CopyOut:
        copy_out(operation.item, operation.block);
        break;
      case ChainOperationKind::WaitOut:
        wait(held(operation.item, operation.block), true);
        break;
      case ChainOperationKind::CopyIn:
        copy_in(operation.item, operation.block);
        break;
      case ChainOperationKind::WaitIn:
        wait(held(operation.item, operation.block), false);
        break;
    }
  }

  std::int64_t during_bytes() const { return std::max(during_, live_); }
  void next() { ++place_; }

  ChainReplay finish() {
    start();
    if (gradient_ != 0) fail("gradient 0 is never made");
    for (const int count : backwards_) {
      if (count != 1) fail("a block has not run backward exactly once");
    }
    for (const auto* all : {&values_, &saved_, &weights_}) {
      for (const HeldItem& one : *all) {
        if (one.is_copied()) fail("a copy is never waited for");
      }
    }
    for (int block = 0; block < blocks_; ++block) {
      if (weights_[as_index(block)].live != weights_at_start_[as_index(block)])
        fail("weights are not where they were at the start");
    }
    result_.seconds = now_;
    return result_;
  }

 private:
  [[noreturn]] void fail(const char* reason) const { throw ChainReplayError(place_, reason); }

  void start() {
    if (started_) return;
    started_ = true;
    result_.peak_bytes = live_;
  }

  std::int64_t value_bytes(int value) const { return chain_value_bytes(chain_, value); }
  std::int64_t bytes(ChainItem item, int index) const {
    if (item == ChainItem::Value) return value_bytes(index);
    if (item == ChainItem::Weights) return chain_.blocks[as_index(index)].weight_bytes;
    const int option =
        saved_[as_index(index)].live ? option_[as_index(index)] : option_below_[as_index(index)];
    return chain_.blocks[as_index(index)].options[as_index(option)].saved_bytes;
  }

  void expect_block(int block) const {
    if (block < 0 || block >= blocks_) fail("there is no such block");
  }
  HeldItem& held(ChainItem item, int index) {
    if (item == ChainItem::Value) {
      if (index < 0 || index > blocks_) fail("there is no such value");
      return values_[as_index(index)];
    }
    expect_block(index);
    return item == ChainItem::Saved ? saved_[as_index(index)] : weights_[as_index(index)];
  }

  bool value_is_live(int value) const {
    return values_[as_index(value)].live || (value > 0 && saved_[as_index(value - 1)].live);
  }
  void expect_input(int block) const {
    const bool there = values_[as_index(block)].is_there() ||
                       (block > 0 && saved_[as_index(block - 1)].is_there());
    if (!there) fail("its input value is not live");
    if (!weights_[as_index(block)].is_there()) fail("its weights are not live");
  }
  void spend(std::int64_t more_bytes, double seconds) {
    during_ = live_ + more_bytes;
    result_.peak_bytes = std::max(result_.peak_bytes, during_);
    now_ += seconds;
  }
  void free(HeldItem& one, std::int64_t bytes) {
    if (one.is_copied()) fail("a copy of it is not waited for");
    one.live = false;
    live_ -= bytes;
  }
  void free_plain(int value) {
    if (values_[as_index(value)].live) free(values_[as_index(value)], value_bytes(value));
  }
  void forget_below(HeldItem& one) {
    below_ -= one.below_bytes;
    one.below_bytes = 0;
    one.below = false;
  }

  void drop(ChainItem item, int index) {
    HeldItem& one = held(item, index);
    if (!one.live)
      fail(item == ChainItem::Value ? "the value is not live by itself" : "it is not live");
    if (item != ChainItem::Value && !one.below) fail("there is no copy of it below");
    free(one, bytes(item, index));
    during_ = live_;
  }

  void forward(int block, bool discard) {
    expect_input(block);
    if (value_is_live(block + 1)) fail("its output value is live already");
    const ChainBlock& source = chain_.blocks[as_index(block)];
    spend(source.output_bytes + source.forward.transient_bytes, source.forward.seconds);
    values_[as_index(block + 1)].live = true;
    live_ += source.output_bytes;
    if (discard) free_plain(block);
  }

  void forward_keep(int block, int option) {
    const ChainBlock& source = chain_.blocks[as_index(block)];
    if (option < 0 || as_index(option) >= source.options.size())
      fail("the block has no such option");
    expect_input(block);
    if (saved_[as_index(block)].live) fail("the block's saved bytes are live already");
    if (values_[as_index(block + 1)].live) fail("its output value is live already");
    const ChainOption& kept = source.options[as_index(option)];
    spend(kept.saved_bytes + kept.forward.transient_bytes, kept.forward.seconds);
    option_[as_index(block)] = option;
    saved_[as_index(block)].live = true;
    live_ += kept.saved_bytes;
  }

  void backward(int block) {
    if (gradient_ != block + 1) fail("the gradient of its output is not live");
    if (!saved_[as_index(block)].is_there()) fail("the block's saved bytes are not live");
    expect_input(block);
    const ChainBlock& source = chain_.blocks[as_index(block)];
    const ChainOption& kept = source.options[as_index(option_[as_index(block)])];
    const std::int64_t made = value_bytes(block) + source.gradient_bytes;
    spend(made + kept.backward.transient_bytes, kept.backward.seconds);
    live_ += made - value_bytes(block + 1);
    free(saved_[as_index(block)], kept.saved_bytes);
    free_plain(block);
    forget_below(saved_[as_index(block)]);
    forget_below(values_[as_index(block)]);
    gradient_ = block;
    ++backwards_[as_index(block)];
  }

  const ChainLinks& links() const {
    if (!chain_.links) fail("the chain has no bandwidths");
    return *chain_.links;
  }
  void begin_copy(HeldItem& one, double& lane_free_at, std::int64_t size, double rate) {
    lane_free_at = std::max(lane_free_at, now_) + static_cast<double>(size) / rate;
    one.copied_at = lane_free_at;
  }

  void copy_out(ChainItem item, int index) {
    HeldItem& one = held(item, index);
    const ChainLinks& link = links();
    if (!one.is_there() || one.goes) fail("what is to go is not live");
    if (one.below) fail("there is a copy below already");
    one.goes = true;
    one.below_bytes = bytes(item, index);
    if (item == ChainItem::Saved) option_below_[as_index(index)] = option_[as_index(index)];
    below_ += one.below_bytes;
    result_.peak_below_bytes = std::max(result_.peak_below_bytes, below_);
    result_.out_bytes += one.below_bytes;
    begin_copy(one, out_free_at_, one.below_bytes, link.out_bytes_per_second);
  }

  void copy_in(ChainItem item, int index) {
    HeldItem& one = held(item, index);
    const ChainLinks& link = links();
    if (!one.below) fail("there is no copy below");
    const bool live = item == ChainItem::Value ? value_is_live(index) : one.live;
    if (live) fail("what is to come is live already");
    const std::int64_t size = bytes(item, index);
    if (item == ChainItem::Saved) option_[as_index(index)] = option_below_[as_index(index)];
    one.live = true;
    one.comes = true;
    live_ += size;
    spend(0, 0);
    result_.in_bytes += size;
    begin_copy(one, in_free_at_, size, link.in_bytes_per_second);
  }

  void wait(HeldItem& one, bool out) {
    if (!(out ? one.goes : one.comes)) fail("there is no such copy to wait for");
    result_.waiting_seconds += std::max(0.0, one.copied_at - now_);
    now_ = std::max(now_, one.copied_at);
    if (out) one.below = true;
    one.goes = false;
    one.comes = false;
  }

  const Chain& chain_;
  int blocks_;
  std::vector<HeldItem> values_;
  std::vector<HeldItem> saved_;
  std::vector<HeldItem> weights_;
  std::vector<int> option_;
  std::vector<int> option_below_;
  std::vector<bool> weights_at_start_;
  std::vector<int> backwards_;
  int gradient_;  // the value whose gradient is live
  bool started_ = false;
  std::int64_t live_ = 0;
  std::int64_t during_ = 0;
  std::int64_t below_ = 0;
  double now_ = 0;
  double out_free_at_ = 0;
  double in_free_at_ = 0;
  std::size_t place_ = 0;  // of the operation in the list
  ChainReplay result_;
};

}  // namespace

ChainReplayError::ChainReplayError(std::size_t operation, const std::string& reason)
    : Error(ExitCode::Usage, fmt::format("operation {}: {}", operation, reason)),
      operation_(operation) {}

ChainReplay replay_chain(const Chain& chain, const std::vector<ChainOperation>& operations,
                         std::vector<std::int64_t>* during_bytes) {
  ChainWalk walk(chain);
  if (during_bytes != nullptr) during_bytes->clear();
  for (const auto& operation : operations) {
    walk.run(operation);
    if (during_bytes != nullptr) during_bytes->push_back(walk.during_bytes());
    walk.next();
  }
  return walk.finish();
}

}  // namespace garonne::plan
