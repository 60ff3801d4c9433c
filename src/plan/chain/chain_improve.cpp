#include "plan/chain/chain_improve.hpp"

#include <algorithm>
#include <optional>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/chain/chain_search.hpp"

namespace garonne::plan {
namespace {

constexpr std::int64_t states_of_a_window = 20'000;
constexpr int window_sizes[] = {8, 14};
// A gain has to be more than rounding.
constexpr double least_gain = 1e-9;

// What is live after the first `count` operations.
struct Live {
  std::vector<bool> values;
  std::vector<int> kept;
};

Live live_after(const Chain& chain, const std::vector<ChainOperation>& operations,
                std::size_t count) {
  Live live{std::vector<bool>(chain.blocks.size() + 1, false),
            std::vector<int>(chain.blocks.size(), -1)};
  live.values[0] = true;
  for (std::size_t n = 0; n < count; ++n) {
    const ChainOperation& operation = operations[n];
    const std::size_t i = as_index(operation.block);
    switch (operation.kind) {
      case ChainOperationKind::ForwardDiscard:
        live.values[i] = false;
        live.values[i + 1] = true;
        break;
      case ChainOperationKind::ForwardCheckpoint:
        live.values[i + 1] = true;
        break;
      case ChainOperationKind::ForwardKeep:
        live.kept[i] = operation.option;
        break;
      case ChainOperationKind::Drop:
        live.values[i] = false;
        break;
      case ChainOperationKind::Backward:
        live.values[i] = false;
        live.kept[i] = -1;
        break;
      default:
        throw InternalError("copies come into a sequence when it is done");
    }
  }
  return live;
}

double seconds_with(const Chain& chain, const ChainOperation& operation,
                    const std::vector<int>& kept) {
  const ChainBlock& block = chain.blocks[as_index(operation.block)];
  switch (operation.kind) {
    case ChainOperationKind::Drop:
      return 0;
    case ChainOperationKind::ForwardKeep:
      return block.options[as_index(operation.option)].forward.seconds;
    case ChainOperationKind::Backward:
      return block.options[as_index(kept[as_index(operation.block)])].backward.seconds;
    default:
      return block.forward.seconds;
  }
}

// Operations [begin, end) touch blocks and values [low, high) only; `stop` is the last to run
// backward.
struct LiveSpan {
  std::size_t begin;
  std::size_t end;
  int low;
  int high;
  int stop;
};

// The longest that ends with the backward of `stop` and touches at most `size` blocks.
std::optional<LiveSpan> find_span(const std::vector<ChainOperation>& operations, int stop,
                                  int size) {
  std::size_t end = 0;
  for (std::size_t n = 0; n < operations.size(); ++n) {
    if (operations[n].kind == ChainOperationKind::Backward && operations[n].block == stop)
      end = n + 1;
  }
  LiveSpan span{end, end, stop, stop + 1, stop};
  while (span.begin > 0) {
    const ChainOperation& operation = operations[span.begin - 1];
    const int low = std::min(span.low, operation.block);
    const int high =
        operation.kind == ChainOperationKind::Backward ? operation.block + 1 : span.high;
    if (high - low > size) break;
    span.low = low;
    span.high = high;
    --span.begin;
  }
  if (span.end - span.begin < 3) return std::nullopt;
  return span;
}

std::int64_t value_bytes(const Chain& chain, int value) {
  return value == 0 ? chain.input_bytes : chain.blocks[as_index(value - 1)].output_bytes;
}

ChainWindow window_of(const Chain& chain, const std::vector<ChainOperation>& operations,
                      const LiveSpan& span, std::int64_t budget_bytes) {
  const Live start = live_after(chain, operations, span.begin);
  const Live end = live_after(chain, operations, span.end);
  ChainWindow window;
  window.low = span.low;
  window.high = span.high;
  window.stop = span.stop;
  window.low_is_outside = span.low == 0 || start.kept[as_index(span.low - 1)] >= 0;
  // Value 0 always stays, and is counted as what is outside.
  std::int64_t outside = chain.input_bytes;
  for (int i = 0; i < span.low; ++i) {
    if (i > 0 && start.values[as_index(i)]) outside += value_bytes(chain, i);
    if (start.kept[as_index(i)] >= 0)
      outside += chain.blocks[as_index(i)].options[as_index(start.kept[as_index(i)])].saved_bytes;
  }
  for (std::size_t i = as_index(span.high); i < chain.blocks.size(); ++i)
    outside += chain.blocks[i].gradient_bytes;
  window.budget_bytes = budget_bytes - outside;
  for (int i = span.low; i < span.high; ++i) {
    window.values.push_back(i > 0 && start.values[as_index(i)]);
    window.kept.push_back(start.kept[as_index(i)]);
  }
  for (int i = span.low; i < span.stop; ++i) {
    window.needed_values.push_back(i > 0 && end.values[as_index(i)]);
    window.needed_kept.push_back(end.kept[as_index(i)]);
  }
  double seconds = 0;
  std::vector<int> kept = start.kept;
  for (std::size_t n = span.begin; n < span.end; ++n) {
    const ChainOperation& operation = operations[n];
    seconds += seconds_with(chain, operation, kept);
    if (operation.kind == ChainOperationKind::ForwardKeep)
      kept[as_index(operation.block)] = operation.option;
  }
  window.upper_seconds = seconds * (1 - least_gain);
  return window;
}

}  // namespace

std::vector<ChainOperation> improve_chain_sequence(const Chain& chain,
                                                   std::vector<ChainOperation> operations,
                                                   std::int64_t budget_bytes,
                                                   std::int64_t most_states) {
  bool improved = true;
  while (improved && most_states > 0) {
    improved = false;
    for (const int size : window_sizes) {
      for (int stop = static_cast<int>(chain.blocks.size()) - 1; stop >= 0; --stop) {
        const auto span = find_span(operations, stop, size);
        if (!span) continue;
        ChainWindow window = window_of(chain, operations, *span, budget_bytes);
        window.most_states = std::min(states_of_a_window, most_states);
        const ChainWindowAnswer answer = search_window(chain, window);
        most_states -= answer.states;
        if (!answer.operations) continue;
        improved = true;
        std::vector<ChainOperation> better(
            operations.begin(), operations.begin() + static_cast<std::ptrdiff_t>(span->begin));
        better.insert(better.end(), answer.operations->begin(), answer.operations->end());
        better.insert(better.end(), operations.begin() + static_cast<std::ptrdiff_t>(span->end),
                      operations.end());
        operations = std::move(better);
      }
    }
  }
  return operations;
}

}  // namespace garonne::plan
