#include "plan/graph/sample_graphs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/error.hpp"
#include "base/index.hpp"

namespace garonne::plan {
namespace {

constexpr double operations_per_second = 1e13;
constexpr double bytes_per_second = 1e12;

// What the writer needs to know of a layer to lay out its forward and its backward.
struct Layer {
  std::string name;
  std::vector<int> inputs;  // value indices
  std::int64_t output_bytes = 0;
  std::int64_t record_bytes = 0;
  std::int64_t parameter_bytes = 0;
  std::int64_t transient_bytes = 0;
  double operations = 0;
  bool reads_inputs = false;  // in the backward
  bool reads_output = false;
  bool passes_gradient = false;  // an addition: the gradient of the output is that of the inputs
};

// Takes layers in forward order and writes the backward after them in reverse.
class TrainingGraphWriter {
 public:
  int input(const std::string& name, std::int64_t bytes) {
    graph_.values.push_back({name, bytes, true, false});
    gradient_.push_back(no_gradient);
    return static_cast<int>(graph_.values.size()) - 1;
  }

  int add(const Layer& layer) {
    const int output = value(layer.name, layer.output_bytes);
    Task task;
    task.name = layer.name;
    task.reads = layer.inputs;
    std::sort(task.reads.begin(), task.reads.end());
    task.reads.erase(std::unique(task.reads.begin(), task.reads.end()), task.reads.end());
    std::int64_t moved = layer.output_bytes + layer.parameter_bytes;
    for (const int read : task.reads) moved += graph_.values[as_index(read)].bytes;
    const double seconds =
        layer.operations / operations_per_second + static_cast<double>(moved) / bytes_per_second;
    task.options.push_back({"keep", {output}, seconds, layer.transient_bytes});
    int record = -1;
    if (layer.record_bytes > 0) {
      record = value(layer.name + ".record", layer.record_bytes);
      task.options[0].makes.push_back(record);
      task.options.push_back({"discard", {output}, seconds, layer.transient_bytes});
    }
    graph_.tasks.push_back(task);
    layers_.push_back({layer, output, record, seconds});
    return output;
  }

  // The gradient of the last output is made by the first backward, as by a loss.
  ComputationGraph take() {
    for (std::size_t i = layers_.size(); i-- > 0;) backward(layers_[i]);
    return std::move(graph_);
  }

 private:
  static constexpr int no_gradient = -2;  // of what comes from outside

  struct Written {
    Layer layer;
    int output = 0;
    int record = -1;
    double seconds = 0;
  };

  int value(const std::string& name, std::int64_t bytes) {
    graph_.values.push_back({name, bytes, false, false});
    gradient_.push_back(-1);
    return static_cast<int>(graph_.values.size()) - 1;
  }

  static void read(Task& task, int value) {
    const auto has = [value](const std::vector<int>& list) {
      return std::find(list.begin(), list.end(), value) != list.end();
    };
    if (!has(task.reads) && !has(task.updates)) task.reads.push_back(value);
  }

  void backward(const Written& written) {
    const Layer& layer = written.layer;
    Task task;
    task.name = layer.name + ".backward";
    task.once = true;
    TaskOption option{"backward", {}, 2 * written.seconds, layer.transient_bytes};
    const int incoming = gradient_[as_index(written.output)];
    if (layer.reads_inputs) {
      for (const int input : layer.inputs) read(task, input);
    }
    if (layer.reads_output || incoming < 0) read(task, written.output);
    if (written.record >= 0) read(task, written.record);
    for (const int input : layer.inputs) {
      const int gradient = gradient_[as_index(input)];
      if (gradient == no_gradient) continue;
      if (gradient >= 0) {
        if (gradient != incoming) task.updates.push_back(gradient);
      } else if (layer.passes_gradient && incoming >= 0) {
        gradient_[as_index(input)] = incoming;
      } else {
        const int made = value(graph_.values[as_index(input)].name + ".gradient",
                               graph_.values[as_index(input)].bytes);
        gradient_[as_index(input)] = made;
        option.makes.push_back(made);
      }
    }
    if (incoming >= 0) read(task, incoming);
    if (layer.parameter_bytes > 0) {
      const int parameter = value(layer.name + ".parameter.gradient", layer.parameter_bytes);
      graph_.values[as_index(parameter)].live_at_end = true;
      option.makes.push_back(parameter);
    }
    task.options.push_back(std::move(option));
    graph_.tasks.push_back(std::move(task));
  }

  ComputationGraph graph_;
  std::vector<int> gradient_;
  std::vector<Written> layers_;
};

Layer convolution(const std::string& name, int input, std::int64_t pixels, std::int64_t in,
                  std::int64_t out, std::int64_t kernel) {
  Layer layer;
  layer.name = name;
  layer.inputs = {input};
  layer.output_bytes = 4 * pixels * out;
  layer.parameter_bytes = 4 * in * out * kernel * kernel;
  layer.operations = 2.0 * static_cast<double>(pixels) * static_cast<double>(in) *
                     static_cast<double>(out) * static_cast<double>(kernel * kernel);
  layer.transient_bytes = layer.output_bytes / 4;
  layer.reads_inputs = true;
  return layer;
}

Layer normalisation(const std::string& name, int input, std::int64_t bytes, std::int64_t statistics,
                    std::int64_t parameter_bytes) {
  Layer layer;
  layer.name = name;
  layer.inputs = {input};
  layer.output_bytes = bytes;
  layer.record_bytes = statistics;
  layer.parameter_bytes = parameter_bytes;
  layer.reads_inputs = true;
  return layer;
}

Layer activation(const std::string& name, int input, std::int64_t bytes, bool from_output) {
  Layer layer;
  layer.name = name;
  layer.inputs = {input};
  layer.output_bytes = bytes;
  layer.reads_inputs = !from_output;
  layer.reads_output = from_output;
  return layer;
}

Layer addition(const std::string& name, int left, int right, std::int64_t bytes) {
  Layer layer;
  layer.name = name;
  layer.inputs = {left, right};
  layer.output_bytes = bytes;
  layer.passes_gradient = true;
  return layer;
}

// A matrix product over tokens.
Layer linear(const std::string& name, int input, std::int64_t tokens, std::int64_t in,
             std::int64_t out) {
  Layer layer = convolution(name, input, tokens, in, out, 1);
  layer.transient_bytes = 0;
  return layer;
}

int add_gpt_block(TrainingGraphWriter& writer, const std::string& name, int stream,
                  std::int64_t tokens, std::int64_t hidden, std::int64_t sequence) {
  const std::int64_t bytes = 4 * tokens * hidden;
  int x = writer.add(normalisation(name + ".norm_1", stream, bytes, 8 * tokens, 8 * hidden));
  x = writer.add(linear(name + ".qkv", x, tokens, hidden, 3 * hidden));
  Layer attention;
  attention.name = name + ".attention";
  attention.inputs = {x};
  attention.output_bytes = bytes;
  attention.record_bytes = 4 * tokens * std::max<std::int64_t>(1, hidden / 64);
  attention.operations = 2.0 * static_cast<double>(tokens) * static_cast<double>(sequence) *
                         static_cast<double>(hidden);
  attention.reads_inputs = true;
  attention.reads_output = true;
  x = writer.add(attention);
  x = writer.add(linear(name + ".projection", x, tokens, hidden, hidden));
  stream = writer.add(addition(name + ".residual_1", stream, x, bytes));
  x = writer.add(normalisation(name + ".norm_2", stream, bytes, 8 * tokens, 8 * hidden));
  x = writer.add(linear(name + ".up", x, tokens, hidden, 4 * hidden));
  x = writer.add(activation(name + ".gelu", x, 4 * bytes, false));
  x = writer.add(linear(name + ".down", x, tokens, 4 * hidden, hidden));
  return writer.add(addition(name + ".residual_2", stream, x, bytes));
}

}  // namespace

ComputationGraph make_gpt_block_graph(std::int64_t tokens, std::int64_t hidden) {
  TrainingGraphWriter writer;
  const int input = writer.input("input", 4 * tokens * hidden);
  add_gpt_block(writer, "block", input, tokens, hidden, tokens);
  return writer.take();
}

ComputationGraph make_transformer_graph(int tasks, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::int64_t hidden = 64 * (8 + static_cast<std::int64_t>(random() % 17));
  const std::int64_t sequence = 256 << (random() % 3);
  // As many tokens as make activations a problem at all: many more than parameters have rows.
  const std::int64_t tokens = hidden * (12 + static_cast<std::int64_t>(random() % 21));
  TrainingGraphWriter writer;
  int stream = writer.input("tokens", 4 * tokens * hidden);
  for (int layer = 0; layer < std::max(1, tasks / 20); ++layer) {
    stream =
        add_gpt_block(writer, fmt::format("layer.{}", layer), stream, tokens, hidden, sequence);
  }
  return writer.take();
}

ComputationGraph make_residual_graph(int tasks, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const int blocks = std::max(4, tasks / 20);
  const std::int64_t batch = 16 + static_cast<std::int64_t>(random() % 49);
  const std::int64_t base = 16 * (2 + static_cast<std::int64_t>(random() % 4));
  const bool bottleneck = random() % 2 == 0;
  std::int64_t side = 56;
  std::int64_t width = base;
  // How many blocks each stage has: more in the third, as in the published ones.
  const int weights[4] = {3, 4 + static_cast<int>(random() % 5),
                          6 + static_cast<int>(random() % 18), 3};
  const int sum = weights[0] + weights[1] + weights[2] + weights[3];
  TrainingGraphWriter writer;
  std::int64_t in = 4 * base;
  int x = writer.input("images", 4 * batch * side * side * in);
  int done = 0;
  int so_far = 0;
  for (int stage = 0; stage < 4; ++stage) {
    so_far += weights[stage];
    const int until = std::max(done + 1, blocks * so_far / sum);
    if (stage > 0) {
      side /= 2;
      width *= 2;
    }
    const std::int64_t pixels = batch * side * side;
    const std::int64_t out = 4 * width;
    for (bool first = true; done < until; ++done, first = false) {
      const std::string name = fmt::format("stage.{}.{}", stage, done);
      const int skip =
          first ? writer.add(convolution(name + ".shortcut", x, pixels, in, out, 1)) : x;
      const std::int64_t inner = bottleneck ? width : 2 * width;
      int y = x;
      const std::int64_t from[3] = {in, inner, inner};
      const std::int64_t to[3] = {inner, inner, out};
      const std::int64_t kernel[3] = {1, 3, 1};
      for (int k = 0; k < 3; ++k) {
        const std::string part = fmt::format("{}.{}", name, k);
        y = writer.add(convolution(part + ".convolution", y, pixels, from[k], to[k], kernel[k]));
        y = writer.add(normalisation(part + ".norm", y, 4 * pixels * to[k], 8 * to[k], 8 * to[k]));
        if (k < 2) y = writer.add(activation(part + ".relu", y, 4 * pixels * to[k], true));
      }
      y = writer.add(addition(name + ".residual", skip, y, 4 * pixels * out));
      x = writer.add(activation(name + ".relu", y, 4 * pixels * out, true));
      in = out;
    }
  }
  return writer.take();
}

ComputationGraph make_u_shaped_graph(int tasks, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const int levels = 4 + static_cast<int>(random() % 2);
  const std::int64_t batch = 2 + static_cast<std::int64_t>(random() % 15);
  const std::int64_t base = 16 * (2 + static_cast<std::int64_t>(random() % 3));
  // Three tasks a unit (convolution, norm, relu) on 2 · levels + 1 floors, forward and backward.
  const int units = std::max(1, (tasks / 2 - 3 * levels) / (3 * (2 * levels + 1)));
  TrainingGraphWriter writer;
  std::int64_t side = 256;
  std::int64_t in = base;
  int x = writer.input("images", 4 * batch * side * side * in);
  const auto floor = [&](const std::string& name, std::int64_t width) {
    const std::int64_t pixels = batch * side * side;
    for (int unit = 0; unit < units; ++unit) {
      const std::string part = fmt::format("{}.{}", name, unit);
      x = writer.add(convolution(part + ".convolution", x, pixels, in, width, 3));
      x = writer.add(normalisation(part + ".norm", x, 4 * pixels * width, 8 * width, 8 * width));
      x = writer.add(activation(part + ".relu", x, 4 * pixels * width, true));
      in = width;
    }
  };
  std::vector<int> skips;
  for (int level = 0; level < levels; ++level) {
    floor(fmt::format("down.{}", level), base << level);
    skips.push_back(x);
    side /= 2;
    x = writer.add(
        activation(fmt::format("pool.{}", level), x, 4 * batch * side * side * in, false));
  }
  floor("bottom", base << levels);
  for (int level = levels; level-- > 0;) {
    side *= 2;
    const std::int64_t width = base << level;
    const std::int64_t pixels = batch * side * side;
    x = writer.add(convolution(fmt::format("widen.{}", level), x, pixels, in, width, 2));
    Layer join;
    join.name = fmt::format("join.{}", level);
    join.inputs = {skips[as_index(level)], x};
    join.output_bytes = 2 * 4 * pixels * width;
    x = writer.add(join);
    in = 2 * width;
    floor(fmt::format("up.{}", level), width);
  }
  return writer.take();
}

ComputationGraph make_sample_graph(const std::string& family, int tasks, std::uint64_t seed) {
  if (family == "residual") return make_residual_graph(tasks, seed);
  if (family == "transformer") return make_transformer_graph(tasks, seed);
  if (family == "u-shaped") return make_u_shaped_graph(tasks, seed);
  throw ConfigError("family", family, "is none of residual, transformer, u-shaped");
}

ComputationGraph make_random_graph(int forwards, int skips, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<std::uint64_t>(limit));
  };
  TrainingGraphWriter writer;
  std::vector<int> values = {writer.input("input", 1 + below(5))};
  for (int i = 0; i < forwards; ++i) {
    Layer layer;
    layer.name = fmt::format("task.{}", i);
    layer.inputs = {values.back()};
    if (below(forwards) < skips) layer.inputs.push_back(values[as_index(below(i + 1))]);
    std::sort(layer.inputs.begin(), layer.inputs.end());
    layer.inputs.erase(std::unique(layer.inputs.begin(), layer.inputs.end()), layer.inputs.end());
    layer.output_bytes = 1 + below(9);
    if (below(3) == 0) layer.record_bytes = 1 + below(5);
    if (below(3) == 0) layer.parameter_bytes = 1 + below(3);
    if (below(3) == 0) layer.transient_bytes = below(4);
    layer.operations = (1 + below(9)) * operations_per_second;
    layer.reads_inputs = below(4) > 0;
    layer.reads_output = below(4) == 0;
    values.push_back(writer.add(layer));
  }
  return writer.take();
}

}  // namespace garonne::plan
