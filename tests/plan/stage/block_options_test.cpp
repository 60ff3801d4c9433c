// Options of blocks with more choices than are tried one by one, against all of them: every choice
// is a Program here, and its bytes and seconds are those of replay.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <random>

#include "plan/program/proofs.hpp"
#include "plan/program/replay.hpp"
#include "plan/stage/packed_record.hpp"
#include "plan/stage/stage_chain.hpp"
#include "plan/step/graphs.hpp"

namespace garonne::plan {
namespace {

using namespace test;

constexpr std::size_t solved_one_by_one = 1024;
constexpr std::size_t most_choices = 8192;  // that the test tries

struct Price {
  // Live between forwards and backwards, with the block's input and output, which a chain counts
  // whether somebody reads them again or not.
  std::int64_t bytes = 0;
  double seconds = 0;
  double backward_seconds = 0;
};

// A block of a model all of whose other blocks keep everything.
class Block {
 public:
  using Choice = std::vector<RecordFate>;

  Block(const ModelGraph& graph, const StageChain& stage, std::size_t number)
      : graph_(graph), begin_(stage.nodes[number].first), end_(stage.nodes[number].second) {
    const int passed_on = graph.nodes[as_index(end_ - 1)].output;
    const int output = number + 1 < stage.nodes.size() ? stage.value[number + 1] : passed_on;
    output_ = output;
    input_ = stage.value[number];
    for (int n = begin_; n < end_; ++n) {
      const NodeSpec& node = graph.nodes[as_index(n)];
      bool worth = false;
      for (const int way : exact_options(node)) {
        worth = worth || !node.keep_option(way).private_slot_bytes.empty();
        for (int reader = begin_; reader < end_ && node.output != output; ++reader) {
          for (const int of_reader : exact_options(graph.nodes[as_index(reader)])) {
            const auto& pinned = graph.nodes[as_index(reader)].keep_option(of_reader).pinned_values;
            worth = worth || std::find(pinned.begin(), pinned.end(), node.output) != pinned.end();
          }
        }
      }
      if (worth) worth_.push_back(n);
    }
  }

  std::size_t choices() const {
    std::size_t count = 1;
    for (const int n : worth_)
      count = std::min(count * possible_fates(graph_.nodes[as_index(n)]).size(), most_choices + 1);
    return count;
  }

  Choice choice(std::size_t number) const {
    Choice choice(as_index(end_ - begin_));
    for (const int n : worth_) {
      const std::vector<RecordFate> fates = possible_fates(graph_.nodes[as_index(n)]);
      choice[as_index(n - begin_)] = fates[number % fates.size()];
      number /= fates.size();
    }
    return choice;
  }

  Price price(const Choice& choice) const {
    Fates fates = keep_everything(graph_);
    for (int n = begin_; n < end_; ++n) {
      const RecordFate fate = choice[as_index(n - begin_)];
      fates.records[as_index(n)] = fate;
      if (graph_.nodes[as_index(n)].output != output_)
        fates.values[as_index(graph_.nodes[as_index(n)].output)] = fate.fate;
    }
    const Program program = make_training_program(
        graph_, step_shape(1, 1, 0), same_for_all(recompute_on_demand(graph_, fates), 1));
    const Prediction prediction = replay(program);
    prove(program, graph_);
    Price price{0, prediction.seconds, 0};
    int forwards = 0;
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const Instruction& instruction = program.instructions[i];
      const bool forward =
          is_forward(instruction.operation) && forwards < static_cast<int>(graph_.nodes.size());
      if (!forward) price.backward_seconds += instruction.seconds;
      if (!forward) continue;
      ++forwards;
      if (forwards == static_cast<int>(graph_.nodes.size()))
        price.bytes += prediction.live_bytes[i];
      for (const int buffer : instruction.frees) {
        if (is_end(program, buffer)) price.bytes += program.buffers[as_index(buffer)].bytes;
      }
    }
    return price;
  }

  // As blocks had it before: each time what saves most bytes for the seconds that it adds.
  std::vector<Price> greedy() const {
    Choice choice = this->choice(0);
    std::vector<Price> prices = {price(choice)};
    while (true) {
      std::optional<double> best;
      Choice next = choice;
      for (const int n : worth_) {
        const RecordFate before = choice[as_index(n - begin_)];
        for (const RecordFate fate : possible_fates(graph_.nodes[as_index(n)])) {
          if (before.fate != Fate::Keep || fate == RecordFate()) continue;
          if (before.option > 0 && fate.fate == Fate::Keep) continue;
          Choice without = choice;
          without[as_index(n - begin_)] = fate;
          const Price priced = price(without);
          const double saved =
              static_cast<double>(std::max<std::int64_t>(prices.back().bytes - priced.bytes, 1));
          const double worth =
              (priced.backward_seconds - prices.back().backward_seconds + 1e-12) / saved;
          if (best && worth >= *best) continue;
          best = worth;
          next = std::move(without);
        }
      }
      if (!best) return prices;
      choice = std::move(next);
      prices.push_back(price(choice));
    }
  }

  int nodes() const { return static_cast<int>(worth_.size()); }

 private:
  // Whether the buffer is the block's input or output, as the first forward makes it.
  bool is_end(const Program& program, int buffer) const {
    for (const Instruction& instruction : program.instructions) {
      if (!is_forward(instruction.operation) || instruction.arguments.output != buffer) continue;
      const int value = graph_.nodes[as_index(instruction.node_index)].output;
      return value == input_ || value == output_;
    }
    return false;
  }

  const ModelGraph& graph_;
  int begin_;
  int end_;
  int input_ = -1;
  int output_ = -1;
  std::vector<int> worth_;
};

double fastest_within(const std::vector<Price>& prices, std::int64_t bytes) {
  double seconds = std::numeric_limits<double>::infinity();
  for (const Price& price : prices) {
    if (price.bytes <= bytes) seconds = std::min(seconds, price.seconds);
  }
  return seconds;
}

// Nodes take times of their own, so that choices differ.
ModelGraph graph_of(unsigned seed) {
  ModelGraph graph = random_graph(seed);
  std::mt19937 random(seed);
  for (NodeSpec& node : graph.nodes) {
    const auto part = [&] { return static_cast<double>(random() % 1000) / 1000; };
    node.forward.seconds = 0.1 + part();
    node.forward_keep.seconds = node.forward.seconds + 0.1 * part();
  }
  return graph;
}

struct Excess {
  int blocks = 0;
  int levels = 0;
  double mean = 0;
  double worst = 0;
  double greedy_mean = 0;
  double greedy_worst = 0;
};

// Over all bytes at which the best of all choices changes: seconds above it, as a part of what it
// takes to make all of the block again.
void compare(const ModelGraph& graph, std::size_t most, Excess& excess) {
  const TaskGraph tasks = make_task_graph(graph, step_shape(1, 1, 0), GradientBuckets::Made);
  const auto stage = make_stage_chain(graph, tasks);
  if (!stage) return;
  for (std::size_t k = 0; k < stage->nodes.size(); ++k) {
    const Block block(graph, *stage, k);
    if (block.choices() <= solved_one_by_one || block.choices() > most) continue;
    SCOPED_TRACE(
        fmt::format("block {} of {} nodes, {} choices", k, block.nodes(), block.choices()));
    std::vector<Price> all;
    for (std::size_t number = 0; number < block.choices(); ++number)
      all.push_back(block.price(block.choice(number)));
    std::vector<Price> offered;
    const std::vector<ChainOption>& options = stage->chain.blocks[k].options;
    for (std::size_t option = 0; option < options.size(); ++option) {
      const Price price = block.price(stage->fates[k][option]);
      // What the chain is told is what the Program does.
      EXPECT_EQ(options[option].saved_bytes - options[0].saved_bytes, price.bytes - all[0].bytes);
      const auto seconds = [&](const ChainOption& of) {
        return of.forward.seconds + of.backward.seconds;
      };
      EXPECT_NEAR(seconds(options[option]) - seconds(options[0]), price.seconds - all[0].seconds,
                  1e-9);
      offered.push_back(price);
    }
    const std::vector<Price> greedy = block.greedy();
    double longest = 0;
    for (const Price& price : all) longest = std::max(longest, price.seconds);
    double before = std::numeric_limits<double>::infinity();
    std::sort(all.begin(), all.end(), [](const Price& a, const Price& b) {
      return std::make_pair(a.bytes, a.seconds) < std::make_pair(b.bytes, b.seconds);
    });
    const double made_again = longest - fastest_within(all, all.back().bytes);
    for (const Price& level : all) {
      if (level.seconds >= before) continue;
      before = level.seconds;
      const double of_options = fastest_within(offered, level.bytes);
      const double of_greedy = fastest_within(greedy, level.bytes);
      ASSERT_LT(of_options, std::numeric_limits<double>::infinity());
      EXPECT_LE(of_options, of_greedy + 1e-9);
      EXPECT_GE(of_options, level.seconds - 1e-9);
      const double above = (of_options - level.seconds) / made_again;
      ++excess.levels;
      excess.mean += above;
      excess.worst = std::max(excess.worst, above);
      if (of_greedy == std::numeric_limits<double>::infinity()) continue;
      excess.greedy_mean += (of_greedy - level.seconds) / made_again;
      excess.greedy_worst = std::max(excess.greedy_worst, (of_greedy - level.seconds) / made_again);
    }
    ++excess.blocks;
  }
}

// Measured, as options are fewer than levels: over 40 blocks of either kind 2.7 and 3.8 % on
// average (3.3 and 5.2 % by greedy alone) and 35 and 32 % at worst.
constexpr double most_mean = 0.05;
constexpr double most_excess = 0.4;

void judge(const char* what, Excess& excess) {
  ASSERT_GE(excess.blocks, 1);
  excess.mean /= excess.levels;
  excess.greedy_mean /= excess.levels;
  EXPECT_LE(excess.mean, most_mean);
  EXPECT_LE(excess.worst, most_excess);
  EXPECT_LT(excess.mean, excess.greedy_mean);
  fmt::print(
      "{} {}: seconds above the best of all choices, of those to make all again: {:.2f} % "
      "on average, {:.1f} % at worst; by greedy alone {:.2f} % and {:.1f} %; {} levels\n",
      excess.blocks, what, 100 * excess.mean, 100 * excess.worst, 100 * excess.greedy_mean,
      100 * excess.greedy_worst, excess.levels);
}

int enough_blocks() {
  const char* more = std::getenv("GARONNE_RANDOM_BLOCKS");
  return more == nullptr ? 5 : std::atoi(more);
}

constexpr unsigned most_seeds = 2000;

TEST(BlockOptions, OfManyNodesAreNearTheBestOfAllChoices) {
  Excess excess;
  for (unsigned seed = 0; seed < most_seeds && excess.blocks < enough_blocks(); ++seed) {
    SCOPED_TRACE(seed);
    compare(graph_of(seed), most_choices, excess);
  }
  judge("blocks of 11 to 13 nodes", excess);
  EXPECT_GE(excess.blocks, enough_blocks());
}

TEST(BlockOptions, InSeveralWaysAreNearThemToo) {
  Excess excess;
  for (unsigned seed = 0; seed < most_seeds && excess.blocks < enough_blocks(); ++seed) {
    SCOPED_TRACE(seed);
    compare(with_packed_records(graph_of(seed)), 2187, excess);
  }
  judge("blocks of 7 nodes with two ways each", excess);
  EXPECT_GE(excess.blocks, enough_blocks());
}

}  // namespace
}  // namespace garonne::plan
