#include "plan/pipeline/stage_cut.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "base/index.hpp"
#include "plan/step/node_schedule.hpp"

namespace garonne::plan {
namespace {

// The values that nodes from `position` on read and earlier ones make, ascending.
std::set<int> crossing_values(const ModelGraph& whole, int position) {
  std::set<int> made;
  for (int n = 0; n < position; ++n) made.insert(whole.nodes[as_index(n)].output);
  std::set<int> crossing;
  for (int n = position; n < static_cast<int>(whole.nodes.size()); ++n) {
    for (const int input : whole.nodes[as_index(n)].inputs) {
      if (made.contains(input)) crossing.insert(input);
    }
  }
  for (const int value : crossing) {
    if (whole.values[as_index(value)].differentiable) continue;
    throw ConfigError(
        "grid.pipeline", "",
        fmt::format("would cut the model before {}, where {} crosses, which has no "
                    "gradient; stages hand over what has one",
                    whole.nodes[as_index(position)].name, whole.values[as_index(value)].name));
  }
  return crossing;
}

// Copies nodes of the whole model, with what they use, into a stage.
class StageMaker {
 public:
  explicit StageMaker(const ModelGraph& whole)
      : whole_(whole), value_(whole.values.size(), -1), parameter_(whole.parameters.size(), -1) {}

  // What an earlier chunk had comes again by message: between the two it was another stage's.
  void forget_values() {
    for (std::size_t v = 0; v < value_.size(); ++v) {
      if (whole_.values[v].differentiable) value_[v] = -1;
    }
  }

  void receive(int value, int chunk) {
    ValueSpec& received = cut_.graph.values[as_index(place_value(value))];
    received.loaded = true;
    received.received_by = chunk;
  }

  void add(const NodeRange& range, int chunk) {
    for (int n = range.first; n < range.last; ++n) {
      NodeSpec node = whole_.nodes[as_index(n)];
      node.chunk = chunk;
      node.block = next_block(node.block);
      for (int& input : node.inputs) input = place_value(input);
      for (int k = 0; k < node.keep_options(); ++k) {
        for (int& value : node.keep_option(k).pinned_values) value = place_value(value);
      }
      node.output = place_value(node.output);
      for (int& parameter : node.parameters) parameter = place_parameter(parameter);
      if (whole_.nodes[as_index(n)].output == whole_.loss) cut_.graph.loss = node.output;
      cut_.graph.nodes.push_back(std::move(node));
      cut_.nodes.push_back(n);
    }
  }

  void hand_over(int value, int chunk) {
    NodeSpec node;
    node.name = "hand-over." + whole_.values[as_index(value)].name;
    node.kind = node.cost_key = "hand-over";
    node.block = cut_.graph.nodes.back().block;
    node.chunk = chunk;
    node.hands_over = true;
    node.inputs = {value_[as_index(value)]};
    node.gradient_aliases = {false};
    node.measured = true;
    node.output = static_cast<int>(cut_.graph.values.size());
    cut_.graph.values.push_back({.name = node.name, .shape = {0}});
    cut_.values.push_back(-1);
    cut_.graph.nodes.push_back(std::move(node));
    cut_.nodes.push_back(-1);
  }

  StageCut take() { return std::move(cut_); }

 private:
  int next_block(int block) {
    if (block != last_block_) ++blocks_;
    last_block_ = block;
    return blocks_;
  }

  int place_value(int value) {
    int& place = value_[as_index(value)];
    if (place < 0) {
      place = static_cast<int>(cut_.graph.values.size());
      cut_.graph.values.push_back(whole_.values[as_index(value)]);
      cut_.values.push_back(value);
    }
    return place;
  }

  int place_parameter(int parameter) {
    int& place = parameter_[as_index(parameter)];
    if (place < 0) {
      place = static_cast<int>(cut_.graph.parameters.size());
      cut_.graph.parameters.push_back(whole_.parameters[as_index(parameter)]);
      cut_.parameters.push_back(parameter);
    }
    return place;
  }

  const ModelGraph& whole_;
  StageCut cut_;
  std::vector<int> value_;      // by value of the whole model: in the stage
  std::vector<int> parameter_;  // likewise
  int last_block_ = -1;
  int blocks_ = -1;
};

}  // namespace

StageCut cut_stage(const ModelGraph& whole, const std::vector<NodeRange>& parts,
                   const std::vector<StagePart>& chunks) {
  StageMaker maker(whole);
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const NodeRange& range = parts.at(as_index(chunks[c].part));
    const int chunk = static_cast<int>(c);
    const bool follows = c > 0 && !chunks[c - 1].hands_over && !chunks[c].receives &&
                         chunks[c - 1].part == chunks[c].part - 1;
    if (!follows) maker.forget_values();
    if (chunks[c].receives) {
      for (const int value : crossing_values(whole, range.first)) maker.receive(value, chunk);
    }
    maker.add(range, chunk);
    if (chunks[c].hands_over) {
      for (const int value : crossing_values(whole, range.last)) maker.hand_over(value, chunk);
    }
  }
  return maker.take();
}

std::vector<bool> part_beginnings(const ModelGraph& whole) {
  const int blocks = whole.blocks();
  std::vector<bool> may_begin(as_index(blocks), true);
  const auto forbid = [&](int first, int last) {
    for (int b = first; b <= last; ++b) may_begin[as_index(b)] = false;
  };
  std::vector<int> last_read(whole.values.size(), -1);
  for (const auto& node : whole.nodes) {
    for (const int input : node.inputs) last_read[as_index(input)] = node.block;
  }
  for (const auto& node : whole.nodes) {
    if (whole.values[as_index(node.output)].differentiable) continue;
    forbid(node.block + 1, last_read[as_index(node.output)]);
  }
  std::vector<int> first_use(whole.parameters.size(), blocks);
  std::vector<int> first_gradient(whole.parameters.size(), blocks);
  for (auto node = whole.nodes.rbegin(); node != whole.nodes.rend(); ++node) {
    for (const int p : node->parameters) {
      first_use[as_index(p)] = node->block;
      if (whole.has_backward(*node)) first_gradient[as_index(p)] = node->block;
    }
  }
  for (std::size_t p = 0; p < first_use.size(); ++p)
    forbid(first_use[p] + 1, std::min(first_gradient[p], blocks - 1));
  return may_begin;
}

namespace {

// Runs of blocks by dynamic programming: what cost(first block, one past the last) adds up to by
// `add` is as little as can be.
template <typename Cost, typename Add>
class BlockRuns {
 public:
  BlockRuns(const std::vector<bool>& may_begin, int parts, Cost cost, Add add) {
    const int blocks = static_cast<int>(may_begin.size());
    const double none = std::numeric_limits<double>::infinity();
    std::vector<double> least(as_index(blocks) + 1, none);  // of the first b blocks
    least[0] = 0;
    from_.assign(as_index(parts), std::vector<int>(as_index(blocks) + 1, 0));
    for (int k = 0; k < parts; ++k) {
      std::vector<double> next(as_index(blocks) + 1, none);
      for (int b = k + 1; b <= blocks; ++b) {
        for (int a = k; a < b; ++a) {
          if (!may_begin[as_index(a)]) continue;
          const double sum = add(least[as_index(a)], cost(a, b));
          if (sum >= next[as_index(b)]) continue;
          next[as_index(b)] = sum;
          from_[as_index(k)][as_index(b)] = a;
        }
      }
      least = std::move(next);
    }
    least_ = least.back();
  }

  double least() const { return least_; }

  // The first block of each run, and one past the last block.
  std::vector<int> firsts() const {
    std::vector<int> result(from_.size() + 1, static_cast<int>(from_.front().size()) - 1);
    for (std::size_t k = from_.size(); k > 0; --k)
      result[k - 1] = from_[k - 1][as_index(result[k])];
    return result;
  }

 private:
  std::vector<std::vector<int>> from_;
  double least_ = 0;
};

}  // namespace

std::vector<int> balanced_blocks(const std::vector<double>& seconds,
                                 const std::vector<bool>& may_begin, int parts) {
  const int blocks = static_cast<int>(seconds.size());
  const auto most = std::count(may_begin.begin(), may_begin.end(), true);
  if (parts > most) {
    throw ConfigError(
        "grid.pipeline", fmt::format("{}", parts),
        fmt::format("parts are more than the {} that the model can be cut into; at most {} fit",
                    most, most));
  }
  std::vector<double> before(as_index(blocks) + 1, 0);  // seconds of the blocks before
  for (int b = 0; b < blocks; ++b)
    before[as_index(b) + 1] = before[as_index(b)] + seconds[as_index(b)];
  const auto of_part = [&](int first, int last) {
    return before[as_index(last)] - before[as_index(first)];
  };
  const double slowest = BlockRuns(may_begin, parts, of_part, [](double a, double b) {
                           return std::max(a, b);
                         }).least();
  // After that, or a part that hides behind the slowest one would decide where others begin.
  const auto square = [&](int first, int last) {
    const double part = of_part(first, last);
    return part <= slowest ? part * part : std::numeric_limits<double>::infinity();
  };
  return BlockRuns(may_begin, parts, square, std::plus<>()).firsts();
}

double balanced_seconds(const ModelGraph& whole, const NodeRange& nodes) {
  double sum = 0;
  for (int n = nodes.first; n < nodes.last; ++n) {
    const NodeSpec& node = whole.nodes[as_index(n)];
    sum += node.forward_keep.seconds;
    if (whole.has_backward(node)) sum += node.backward.seconds + node.backward_weight.seconds;
  }
  return sum;
}

std::vector<NodeRange> balanced_parts(const ModelGraph& whole, int parts) {
  const auto ranges = block_ranges(whole);
  std::vector<double> seconds;
  for (const auto& [first, last] : ranges)
    seconds.push_back(balanced_seconds(whole, {first, last}));
  const std::vector<int> firsts = balanced_blocks(seconds, part_beginnings(whole), parts);
  std::vector<NodeRange> result;
  for (int k = 0; k < parts; ++k) {
    result.push_back({ranges[as_index(firsts[as_index(k)])].first,
                      ranges[as_index(firsts[as_index(k) + 1] - 1)].second});
  }
  return result;
}

}  // namespace garonne::plan
