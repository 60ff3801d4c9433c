#include "plan/chain/chain_gaps.hpp"

#include <algorithm>
#include <array>

#include "base/index.hpp"
#include "plan/chain/chain_replay.hpp"

namespace garonne::plan {
namespace {

// One thing that can be live: since when, and used when.
struct Thing {
  bool live = false;
  bool again = false;
  int made_at = -1;
  int last_use = -1;
  int first_use = -1;
  std::int64_t bytes = 0;
};

class Finder {
 public:
  explicit Finder(const Chain& chain)
      : chain_(chain),
        values_(chain.blocks.size() + 1),
        saved_(chain.blocks.size()),
        weights_(chain.blocks.size()) {
    values_[0] = {true, false, -1, -1, -1, chain.input_bytes};
    for (std::size_t block = 0; block < chain.blocks.size(); ++block)
      weights_[block] = {true, false, -1, -1, -1, chain.blocks[block].weight_bytes};
  }

  void run(int place, const ChainOperation& operation) {
    const int block = operation.block;
    if (operation.kind == ChainOperationKind::Drop) {
      values_[as_index(block)].live = false;
      return;
    }
    use_input(place, block);
    use(place, ChainItem::Weights, block, weights_[as_index(block)]);
    switch (operation.kind) {
      case ChainOperationKind::ForwardDiscard:
        values_[as_index(block)].live = false;
        [[fallthrough]];
      case ChainOperationKind::ForwardCheckpoint:
        make(place, values_[as_index(block + 1)], chain_value_bytes(chain_, block + 1));
        break;
      case ChainOperationKind::ForwardKeep:
        make(place, saved_[as_index(block)],
             chain_.blocks[as_index(block)].options[as_index(operation.option)].saved_bytes);
        break;
      default:
        use(place, ChainItem::Saved, block, saved_[as_index(block)]);
        saved_[as_index(block)].live = false;
        values_[as_index(block)].live = false;
    }
  }

  std::vector<ChainGap> finish(int operations) {
    for (std::size_t block = 0; block < weights_.size(); ++block) {
      const Thing& one = weights_[block];
      if (one.bytes > 0) {
        found_.push_back({ChainItem::Weights, static_cast<int>(block), one.bytes, -1, one.last_use,
                          operations + one.first_use, true, true});
      }
    }
    std::stable_sort(found_.begin(), found_.end(),
                     [](const ChainGap& a, const ChainGap& b) { return a.made_at < b.made_at; });
    return found_;
  }

 private:
  static void make(int place, Thing& thing, std::int64_t bytes) {
    thing = {true, false, place, place, -1, bytes};
  }

  void use_input(int place, int block) {
    Thing& value = values_[as_index(block)];
    if (value.live) {
      use(place, ChainItem::Value, block, value);
    } else {
      use(place, ChainItem::Saved, block - 1, saved_[as_index(block - 1)]);
    }
  }

  void use(int place, ChainItem item, int index, Thing& thing) {
    const bool first = thing.first_use < 0;
    if (first) thing.first_use = place;
    // Before their first use in a step weights are in the gap that began in the one before.
    const bool in_step = item != ChainItem::Weights || !first;
    if (in_step && place > thing.last_use + 1 && thing.bytes > 0) {
      found_.push_back({item, index, thing.bytes, thing.made_at, thing.last_use, place,
                        item == ChainItem::Weights, thing.again});
      thing.again = true;
    }
    thing.last_use = place;
  }

  const Chain& chain_;
  std::vector<Thing> values_;
  std::vector<Thing> saved_;
  std::vector<Thing> weights_;
  std::vector<ChainGap> found_;
};

}  // namespace

std::vector<ChainGap> chain_gaps(const Chain& chain,
                                 const std::vector<ChainOperation>& operations) {
  Finder finder(chain);
  for (int place = 0; place < static_cast<int>(operations.size()); ++place)
    finder.run(place, operations[as_index(place)]);
  return finder.finish(static_cast<int>(operations.size()));
}

GapBytes::GapBytes(const Chain& chain, const std::vector<ChainOperation>& operations) {
  replay_chain(chain, operations, &during_);
}

std::int64_t GapBytes::peak() const {
  return *std::max_element(during_.begin(), during_.end());
}

void GapBytes::add(int from, int to, std::int64_t bytes) {
  for (int place = from; place < to; ++place) during_[as_index(place)] += bytes;
}

}  // namespace garonne::plan
