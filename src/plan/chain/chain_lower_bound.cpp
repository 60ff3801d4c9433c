#include "plan/chain/chain_lower_bound.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include "plan/chain/choice_relaxation.hpp"

namespace garonne::plan {
namespace {

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
  return chain.input_bytes + (l > 0 ? chain_value_bytes(chain, static_cast<int>(l)) : 0) + least +
         block.output_bytes + chain_value_bytes(chain, static_cast<int>(l)) + block.gradient_bytes +
         gradients;
}

}  // namespace

double chain_lower_bound_seconds(const Chain& chain, std::int64_t budget_bytes) {
  double total = 0;
  for (const auto& block : chain.blocks) total += least_seconds(block);
  double bound = total;
  std::int64_t gradients = 0;
  for (std::size_t l = chain.blocks.size(); l-- > 0;) {
    ChoiceRelaxation before;
    double seconds = total;
    for (std::size_t q = 0; q < l; ++q) {
      const ChainBlock& block = chain.blocks[q];
      // The input of l is counted already.
      const std::int64_t counted = q + 1 == l ? block.output_bytes : 0;
      const double least = least_seconds(block);
      std::vector<BytesChoice> choices = {{0, block.forward.seconds + least}};
      for (const auto& option : block.options) {
        choices.push_back({static_cast<double>(option.saved_bytes - counted),
                           option.forward.seconds + option.backward.seconds});
      }
      before.add(std::move(choices));
      seconds -= least;
    }
    const std::int64_t room = budget_bytes - backward_bytes(chain, l, gradients);
    seconds += before.least_seconds(static_cast<double>(room));
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
