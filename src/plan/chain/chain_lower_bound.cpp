#include "plan/chain/chain_lower_bound.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace garonne::plan {
namespace {

struct Choice {
  double bytes;
  double seconds;
};

struct Step {
  double bytes;
  double saves;
};

// The choices of a block before l: to pass it again, or to keep it. Returns the seconds of the one
// with fewest bytes and adds the steps along the lower convex hull.
double add_hull(std::vector<Choice> choices, std::vector<Step>& steps) {
  std::sort(choices.begin(), choices.end(), [](const Choice& a, const Choice& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.seconds < b.seconds;
  });
  std::vector<Choice> hull;
  for (const auto& choice : choices) {
    if (!hull.empty() && choice.seconds >= hull.back().seconds) continue;
    while (hull.size() >= 2) {
      const Choice& one = hull[hull.size() - 2];
      const Choice& two = hull.back();
      // The middle one stays if the slope gets flatter after it.
      if ((one.seconds - two.seconds) * (choice.bytes - two.bytes) >
          (two.seconds - choice.seconds) * (two.bytes - one.bytes))
        break;
      hull.pop_back();
    }
    hull.push_back(choice);
  }
  for (std::size_t n = 1; n < hull.size(); ++n) {
    steps.push_back({hull[n].bytes - hull[n - 1].bytes, hull[n - 1].seconds - hull[n].seconds});
  }
  return hull.front().seconds;
}

std::int64_t input_bytes(const Chain& chain, std::size_t block) {
  return block == 0 ? chain.input_bytes : chain.blocks[block - 1].output_bytes;
}

double least_seconds(const ChainBlock& block) {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& option : block.options)
    least = std::min(least, option.forward.seconds + option.backward.seconds);
  return least;
}

// What is live while block l runs backward, without what the blocks before it keep; its input may
// be inside the saved bytes of the block before.
std::int64_t backward_bytes(const Chain& chain, std::size_t l, std::int64_t gradients) {
  const ChainBlock& block = chain.blocks[l];
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const auto& option : block.options)
    least = std::min(least, option.saved_bytes + option.backward.transient_bytes);
  return chain.input_bytes + (l > 0 ? input_bytes(chain, l) : 0) + least + block.output_bytes +
         input_bytes(chain, l) + block.gradient_bytes + gradients;
}

}  // namespace

double chain_lower_bound_seconds(const Chain& chain, std::int64_t budget_bytes) {
  double total = 0;
  for (const auto& block : chain.blocks) total += least_seconds(block);
  double bound = total;
  std::int64_t gradients = 0;
  for (std::size_t l = chain.blocks.size(); l-- > 0;) {
    std::vector<Step> steps;
    double seconds = total;
    for (std::size_t q = 0; q < l; ++q) {
      const ChainBlock& block = chain.blocks[q];
      // The input of l is counted already.
      const std::int64_t counted = q + 1 == l ? block.output_bytes : 0;
      const double least = least_seconds(block);
      std::vector<Choice> choices = {{0, block.forward.seconds + least}};
      for (const auto& option : block.options) {
        choices.push_back({static_cast<double>(option.saved_bytes - counted),
                           option.forward.seconds + option.backward.seconds});
      }
      seconds += add_hull(std::move(choices), steps) - least;
    }
    std::sort(steps.begin(), steps.end(),
              [](const Step& a, const Step& b) { return a.saves * b.bytes > b.saves * a.bytes; });
    auto room = static_cast<double>(budget_bytes - backward_bytes(chain, l, gradients));
    for (const auto& step : steps) {
      if (room <= 0) break;
      const double share = step.bytes <= room ? 1 : room / step.bytes;
      seconds -= share * step.saves;
      room -= step.bytes;
    }
    bound = std::max(bound, seconds);
    gradients += chain.blocks[l].gradient_bytes;
  }
  // Sums in another order than replay's.
  return std::max(0.0, bound - 1e-12 * bound);
}

std::int64_t chain_lower_bound_bytes(const Chain& chain) {
  std::int64_t bound = 0;
  std::int64_t gradients = 0;
  for (std::size_t l = chain.blocks.size(); l-- > 0;) {
    bound = std::max(bound, backward_bytes(chain, l, gradients));
    gradients += chain.blocks[l].gradient_bytes;
  }
  return bound;
}

}  // namespace garonne::plan
