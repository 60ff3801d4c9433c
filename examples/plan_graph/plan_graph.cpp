// Plans a graph that is no model of Garonne: a network that goes down four levels and up again,
// with a bridge on each level, within the bytes given. Prints the fastest order of keeping and
// running again.
//   plan_graph [BYTES]
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/bytes.hpp"
#include "plan/graph/graph_replay.hpp"
#include "plan/graph/graph_solver.hpp"

namespace {

namespace plan = garonne::plan;

class Network {
 public:
  // Index of a new value.
  int value(const std::string& name, std::int64_t bytes, bool at_start = false,
            bool at_end = false) {
    graph_.values.push_back({name, bytes, at_start, at_end});
    return static_cast<int>(graph_.values.size()) - 1;
  }
  void task(const std::string& name, std::vector<int> reads, std::vector<int> makes, double seconds,
            bool once) {
    graph_.tasks.push_back(
        {name, std::move(reads), {}, {{"", std::move(makes), seconds, 0}}, once});
  }
  const plan::ComputationGraph& graph() const { return graph_; }
  std::int64_t bytes_of(int value) const {
    return graph_.values[static_cast<std::size_t>(value)].bytes;
  }

 private:
  plan::ComputationGraph graph_;
};

// A layer: its inputs, its output and what it costs.
struct Layer {
  std::string name;
  std::vector<int> inputs;
  int output;
  double seconds;
};

plan::ComputationGraph make_network() {
  Network network;
  constexpr int levels = 4;
  constexpr std::int64_t finest = 64 << 20;
  std::vector<Layer> layers;
  std::vector<int> bridges;
  int last = network.value("input", finest, /*at_start=*/true);
  const auto layer = [&](const std::string& name, std::vector<int> inputs, int level) {
    const int output = network.value(name, finest >> level);
    const double seconds = 0.010 / (1 << level);
    network.task("forward " + name, inputs, {output}, seconds, /*once=*/false);
    layers.push_back({name, std::move(inputs), output, seconds});
    last = output;
  };
  for (int level = 0; level < levels; ++level) {
    layer("down" + std::to_string(level), {last}, level);
    bridges.push_back(last);
  }
  for (int level = levels - 2; level >= 0; --level) {
    layer("up" + std::to_string(level), {last, bridges[static_cast<std::size_t>(level)]}, level);
  }
  // Backwards, each of which reads the inputs of its layer and the gradient of its output.
  // Gradients of bridges are summed by the layer that is further up, so that every task makes what
  // it makes alone.
  std::vector<std::vector<int>> gradients(network.graph().values.size());
  gradients[static_cast<std::size_t>(last)] = {
      network.value("gradient of the loss", network.bytes_of(last))};
  network.task("loss", {last}, gradients[static_cast<std::size_t>(last)], 0.001, /*once=*/true);
  for (auto at = layers.rbegin(); at != layers.rend(); ++at) {
    std::vector<int> reads = at->inputs;
    for (const int gradient : gradients[static_cast<std::size_t>(at->output)])
      reads.push_back(gradient);
    std::vector<int> makes;
    for (const int input : at->inputs) {
      const bool of_data = input == 0;
      const int made = network.value(
          "gradient of " + network.graph().values[static_cast<std::size_t>(input)].name + " by " +
              at->name,
          of_data ? 64 : network.bytes_of(input), false, /*at_end=*/of_data);
      makes.push_back(made);
      gradients[static_cast<std::size_t>(input)].push_back(made);
    }
    network.task("backward " + at->name, std::move(reads), std::move(makes), 2 * at->seconds,
                 /*once=*/true);
  }
  return network.graph();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const plan::ComputationGraph graph = make_network();
    const plan::ScheduleOutcome all = plan::replay_schedule(graph, plan::keep_all_schedule(graph));
    const std::int64_t budget = argc > 1 ? std::atoll(argv[1]) : all.peak_bytes * 7 / 8;
    fmt::print("keeping all takes {} and {:.1f} ms\n", garonne::format_bytes(all.peak_bytes),
               1e3 * all.seconds);
    const plan::GraphAnswer answer = plan::graph_solver("annealing").solve(graph, budget, {});
    if (!answer.schedule) {
      fmt::print("nothing fits {}; the smallest budget known is {} bytes\n",
                 garonne::format_bytes(budget), answer.minimum_bytes);
      return 3;
    }
    fmt::print("within {}: {} and {:.1f} ms, and nothing is faster than {:.1f} ms\n",
               garonne::format_bytes(budget), garonne::format_bytes(answer.peak_bytes),
               1e3 * answer.seconds, 1e3 * answer.lower_bound_seconds);
    std::vector<bool> ran(graph.tasks.size());
    for (const plan::TaskStep& step : *answer.schedule) {
      const auto task = static_cast<std::size_t>(step.task);
      fmt::print("  {}{}\n", graph.tasks[task].name, ran[task] ? " (again)" : "");
      ran[task] = true;
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "plan_graph: {}\n", error.what());
    return 1;
  }
}
