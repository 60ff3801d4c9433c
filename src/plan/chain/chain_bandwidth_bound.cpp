#include "plan/chain/chain_bandwidth_bound.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.hpp"
#include "plan/chain/choice_relaxation.hpp"

namespace garonne::plan {
namespace {

// Of a long chain not all moments are looked at: the bound holds by any of them.
constexpr std::size_t most_chain_moments = 48;
constexpr int rounds = 2;  // of looking for prices, one after the other
constexpr int golden_steps = 12;

// What a second of a lane is worth where a second of the passes beside it is worth the rest of one.
struct Prices {
  double out = 0;
  double in = 0;
};

class ChainMoment {
 public:
  ChainMoment(const Chain& chain, std::int64_t budget_bytes, std::size_t last)
      : chain_(chain), budget_bytes_(budget_bytes), last_(last) {}

  double best_seconds(Prices& prices) const {
    double best = seconds(prices);
    for (const Prices& start : {Prices{0, 0}, Prices{0.5, 0.5}, Prices{1, 1}}) {
      const double there = seconds(start);
      if (there <= best) continue;
      best = there;
      prices = start;
    }
    for (int round = 0; round < rounds; ++round) {
      for (double Prices::*price : {&Prices::in, &Prices::out})
        best = std::max(best, climb(prices, price));
    }
    return best;
  }

 private:
  // It is concave in the prices.
  double climb(Prices& prices, double Prices::*price) const {
    const double ratio = (std::sqrt(5.0) - 1) / 2;
    const auto of = [&](double value) {
      Prices other = prices;
      other.*price = value;
      return seconds(other);
    };
    double low = 0;
    double high = 1;
    double one = high - ratio * (high - low);
    double two = low + ratio * (high - low);
    double at_one = of(one);
    double at_two = of(two);
    for (int step = 0; step < golden_steps; ++step) {
      if (at_one >= at_two) {
        high = two;
        two = one;
        at_two = at_one;
        one = high - ratio * (high - low);
        at_one = of(one);
      } else {
        low = one;
        one = two;
        at_one = at_two;
        two = low + ratio * (high - low);
        at_two = of(two);
      }
    }
    const double before = seconds(prices);
    const double found = std::max(at_one, at_two);
    if (found <= before) return before;
    prices.*price = at_one >= at_two ? one : two;
    return found;
  }

  // The input of the chain may be below, or not; what else leaves is made by a pass first.
  double seconds(const Prices& prices) const {
    if (last_ == 0) return seconds(prices, false);
    return std::min(seconds(prices, false), seconds(prices, true));
  }

  double seconds(const Prices& prices, bool input_below) const {
    const double before = 1 - prices.out;
    const double behind = 1 - prices.in;
    const double moving = prices.out / chain_.links->out_bytes_per_second +
                          prices.in / chain_.links->in_bytes_per_second;
    const ChainBlock& now = chain_.blocks[last_];
    ChoiceRelaxation all;
    double fixed = 0;
    std::int64_t bytes = chain_value_bytes(chain_, static_cast<int>(last_)) + now.output_bytes +
                         now.gradient_bytes + now.weight_bytes;
    if (last_ > 0) bytes += chain_value_bytes(chain_, static_cast<int>(last_));
    if (!input_below) bytes += chain_.input_bytes;
    all.add({{static_cast<double>(bytes), 0}});
    std::vector<BytesChoice> choices;
    for (const ChainOption& option : now.options) {
      choices.push_back({static_cast<double>(option.saved_bytes + option.backward.transient_bytes),
                         before * option.forward.seconds + option.backward.seconds});
    }
    all.add(choices);
    for (std::size_t q = last_ + 1; q < chain_.blocks.size(); ++q) {
      const ChainBlock& block = chain_.blocks[q];
      fixed += before * least(block, 1, 1);
      all.add({{static_cast<double>(block.gradient_bytes), 0}});
    }
    for (std::size_t q = 0; q < last_; ++q) add_before(q, before, behind, moving, prices, all);
    if (input_below) {
      fixed += moving * static_cast<double>(chain_.input_bytes);
    } else if (last_ > 0) {
      fixed += prices.out * least_pass(chain_.blocks[0]);
    }
    if (last_ > 0) fixed += prices.in * least(chain_.blocks[0], 0, 1);
    return fixed + all.least_seconds(static_cast<double>(budget_bytes_));
  }

  void add_before(std::size_t q, double before, double behind, double moving, const Prices& prices,
                  ChoiceRelaxation& all) const {
    const ChainBlock& block = chain_.blocks[q];
    // The input of the last one is counted already.
    const std::int64_t counted = q + 1 == last_ ? block.output_bytes : 0;
    std::vector<BytesChoice> choices = {
        {0, before * least_pass(block) + behind * least(block, 1, 1)}};
    for (const ChainOption& option : block.options) {
      const double passes = before * option.forward.seconds + behind * option.backward.seconds;
      choices.push_back({static_cast<double>(option.saved_bytes - counted), passes});
      choices.push_back({0, passes + moving * static_cast<double>(option.saved_bytes)});
    }
    all.add(std::move(choices));
    if (block.weight_bytes == 0) return;
    const auto weights = static_cast<double>(block.weight_bytes);
    all.add({{weights, 0}, {0, prices.in / chain_.links->in_bytes_per_second * weights}});
  }

  static double least(const ChainBlock& block, double forward, double backward) {
    double seconds = std::numeric_limits<double>::infinity();
    for (const ChainOption& option : block.options) {
      seconds =
          std::min(seconds, forward * option.forward.seconds + backward * option.backward.seconds);
    }
    return seconds;
  }
  static double least_pass(const ChainBlock& block) {
    double seconds = block.forward.seconds;
    for (const ChainOption& option : block.options)
      seconds = std::min(seconds, option.forward.seconds);
    return seconds;
  }

  const Chain& chain_;
  std::int64_t budget_bytes_;
  std::size_t last_;
};

}  // namespace

double chain_bandwidth_bound_seconds(const Chain& chain, std::int64_t budget_bytes) {
  expect(chain.links.has_value(), "a chain with copies has links");
  double bound = 0;
  for (const ChainBlock& block : chain.blocks) {
    double least = std::numeric_limits<double>::infinity();
    for (const ChainOption& option : block.options)
      least = std::min(least, option.forward.seconds + option.backward.seconds);
    bound += least;
  }
  Prices prices;
  const std::size_t stride = (chain.blocks.size() + most_chain_moments - 1) / most_chain_moments;
  for (std::size_t l = 0; l < chain.blocks.size(); l += stride)
    bound = std::max(bound, ChainMoment(chain, budget_bytes, l).best_seconds(prices));
  // Sums in another order than replay's.
  return std::max(0.0, bound - 1e-12 * bound);
}

}  // namespace garonne::plan
