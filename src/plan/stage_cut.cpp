#include "plan/stage_cut.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/error.hpp"
#include "plan/node_schedule.hpp"

namespace garonne::plan {
namespace {

std::size_t index(int id) {
  return static_cast<std::size_t>(id);
}

// The differentiable value that nodes from `position` on read and earlier ones make.
int crossing_value(const ModelGraph& whole, int position) {
  std::set<int> made;
  for (int n = 0; n < position; ++n) made.insert(whole.nodes[index(n)].output);
  std::set<int> crossing;
  for (int n = position; n < static_cast<int>(whole.nodes.size()); ++n) {
    for (const int input : whole.nodes[index(n)].inputs) {
      if (made.contains(input)) crossing.insert(input);
    }
  }
  if (crossing.size() != 1) {
    std::string names;
    for (const int value : crossing)
      names += (names.empty() ? "" : ", ") + whole.values[index(value)].name;
    throw ConfigError("grid.pipeline", "",
                      fmt::format("would cut the model before {}, where {} values cross ({}); a "
                                  "stage hands over one",
                                  whole.nodes[index(position)].name, crossing.size(), names));
  }
  return *crossing.begin();
}

// Copies nodes of the whole model, with what they use, into a stage.
class StageMaker {
 public:
  explicit StageMaker(const ModelGraph& whole)
      : whole_(whole), value_(whole.values.size(), -1), parameter_(whole.parameters.size(), -1) {}

  void receive(int value) {
    place_value(value);
    cut_.graph.values[index(value_[index(value)])].loaded = true;
  }

  void add(const NodeRange& range, int chunk) {
    for (int n = range.first; n < range.last; ++n) {
      NodeSpec node = whole_.nodes[index(n)];
      node.chunk = chunk;
      node.block = next_block(node.block);
      for (int& input : node.inputs) input = place_value(input);
      for (int& value : node.pinned_values) value = place_value(value);
      node.output = place_value(node.output);
      for (int& parameter : node.parameters) parameter = place_parameter(parameter);
      if (whole_.nodes[index(n)].output == whole_.loss) cut_.graph.loss = node.output;
      cut_.graph.nodes.push_back(std::move(node));
      cut_.nodes.push_back(n);
    }
  }

  void hand_over(int value, int chunk) {
    NodeSpec node;
    node.name = "hand-over." + whole_.values[index(value)].name;
    node.kind = node.cost_key = "hand-over";
    node.block = cut_.graph.nodes.back().block;
    node.chunk = chunk;
    node.hands_over = true;
    node.inputs = {value_[index(value)]};
    node.gradient_aliases = {false};
    node.measured = true;
    node.output = static_cast<int>(cut_.graph.values.size());
    cut_.graph.values.push_back({node.name, 0, true, false, 0});
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
    int& place = value_[index(value)];
    if (place < 0) {
      place = static_cast<int>(cut_.graph.values.size());
      cut_.graph.values.push_back(whole_.values[index(value)]);
      cut_.values.push_back(value);
    }
    return place;
  }

  int place_parameter(int parameter) {
    int& place = parameter_[index(parameter)];
    if (place < 0) {
      place = static_cast<int>(cut_.graph.parameters.size());
      cut_.graph.parameters.push_back(whole_.parameters[index(parameter)]);
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
                   const std::vector<int>& chunks) {
  StageMaker maker(whole);
  std::set<int> mine;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    const int part = chunks[c];
    const NodeRange& range = parts.at(index(part));
    const bool follows = c > 0 && chunks[c - 1] == part - 1;
    if (part > 0 && !follows) maker.receive(crossing_value(whole, range.first));
    maker.add(range, static_cast<int>(c));
    const bool goes_on = c + 1 < chunks.size() && chunks[c + 1] == part + 1;
    if (index(part) + 1 < parts.size() && !goes_on)
      maker.hand_over(crossing_value(whole, range.last), static_cast<int>(c));
    for (int n = range.first; n < range.last; ++n) mine.insert(n);
  }
  StageCut cut = maker.take();
  for (std::size_t p = 0; p < cut.parameters.size(); ++p) {
    for (int n = 0; n < static_cast<int>(whole.nodes.size()); ++n) {
      const auto& used = whole.nodes[index(n)].parameters;
      if (mine.contains(n) || std::find(used.begin(), used.end(), cut.parameters[p]) == used.end())
        continue;
      cut.graph.parameters[p].tied = true;
      if (n < *mine.begin()) cut.graph.parameters[p].counted = false;
    }
  }
  return cut;
}

std::vector<int> balanced_blocks(const std::vector<double>& seconds, int parts) {
  const int blocks = static_cast<int>(seconds.size());
  if (parts > blocks) {
    throw ConfigError("grid.pipeline", fmt::format("{}", parts),
                      fmt::format("parts are more than the {} blocks of the model (embedding, "
                                  "layers and head); at most {} fit",
                                  blocks, blocks));
  }
  std::vector<double> before(index(blocks) + 1, 0);  // seconds of the blocks before
  for (int b = 0; b < blocks; ++b) before[index(b) + 1] = before[index(b)] + seconds[index(b)];
  // best[k][b]: (slowest, sum of squares) of the first b blocks in k parts.
  using Cost = std::pair<double, double>;
  const Cost none{std::numeric_limits<double>::infinity(), 0};
  std::vector<std::vector<Cost>> best(index(parts) + 1, std::vector<Cost>(index(blocks) + 1, none));
  std::vector<std::vector<int>> from(index(parts) + 1, std::vector<int>(index(blocks) + 1, 0));
  best[0][0] = {0, 0};
  for (int k = 1; k <= parts; ++k) {
    for (int b = k; b <= blocks; ++b) {
      for (int a = k - 1; a < b; ++a) {
        const Cost& rest = best[index(k) - 1][index(a)];
        const double of_part = before[index(b)] - before[index(a)];
        const Cost cost{std::max(rest.first, of_part), rest.second + of_part * of_part};
        if (cost >= best[index(k)][index(b)]) continue;
        best[index(k)][index(b)] = cost;
        from[index(k)][index(b)] = a;
      }
    }
  }
  std::vector<int> firsts(index(parts) + 1, blocks);
  for (int k = parts, b = blocks; k > 0; --k) b = firsts[index(k) - 1] = from[index(k)][index(b)];
  return firsts;
}

std::vector<NodeRange> balanced_parts(const ModelGraph& whole, int parts) {
  const auto ranges = block_ranges(whole);
  std::vector<double> seconds;
  for (const auto& [first, last] : ranges) {
    double sum = 0;
    for (int n = first; n < last; ++n) {
      const NodeSpec& node = whole.nodes[index(n)];
      sum += node.forward_keep.seconds + node.backward.seconds + node.backward_weight.seconds;
    }
    seconds.push_back(sum);
  }
  const std::vector<int> firsts = balanced_blocks(seconds, parts);
  std::vector<NodeRange> result;
  for (int k = 0; k < parts; ++k) {
    result.push_back(
        {ranges[index(firsts[index(k)])].first, ranges[index(firsts[index(k) + 1] - 1)].second});
  }
  return result;
}

}  // namespace garonne::plan
