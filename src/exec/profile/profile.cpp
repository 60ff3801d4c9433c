#include "exec/profile/profile.hpp"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "base/bytes.hpp"
#include "base/device.hpp"
#include "base/error.hpp"
#include "base/seconds.hpp"
#include "exec/device_tables.hpp"
#include "exec/device_tier.hpp"
#include "exec/model_state.hpp"
#include "exec/profile/product_choice.hpp"
#include "exec/profile/profile_bytes.hpp"
#include "exec/profile/timing.hpp"
#include "kernels/reduction.hpp"
#include "nn/element_type.hpp"
#include "nn/layers/recorded_bytes.hpp"
#include "nn/tensor_options.hpp"
#include "plan/model/step_costs.hpp"

namespace garonne::exec {
namespace {

// More fits no core's part of a cache.
constexpr std::int64_t most_swept = std::int64_t{32} << 20;

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max() / 2;

// Products, a few at a time, until so many seconds are over.
void warm_up(const Queue& queue, const MeasuredGpu& gpu) {
  if (gpu.warm_up_seconds <= 0) return;
  constexpr std::int64_t side = warm_up_side;
  constexpr int at_once = 8;
  const at::Tensor left = random_tensor(queue, {side, side}, at::kFloat);
  const at::Tensor right = random_tensor(queue, {side, side}, at::kFloat);
  at::Tensor product = at::empty_like(left);
  const auto start = std::chrono::steady_clock::now();
  while (seconds_since(start) < gpu.warm_up_seconds) {
    for (int turn = 0; turn < at_once; ++turn) at::mm_out(product, left, right);
    gpu.device->wait(gpu.device->launched(Lane::Compute, "products before what is measured"));
  }
}

// A step comes to a node with cold caches: since its weights and inputs were last touched, it has
// been through the rest of the model. Writes as many bytes as that is, up to the most.
class CacheSweep {
 public:
  CacheSweep(const Queue& queue, const nn::Model& model, std::int64_t element_bytes,
             std::int64_t most_bytes) {
    const std::int64_t bytes = swept_bytes(model, element_bytes, most_bytes);
    swept_ = at::zeros({bytes / 8}, nn::tensor_options(queue, at::kLong));
  }

  void operator()() { swept_.add_(1); }

 private:
  at::Tensor swept_;
};

// One node with made-up inputs, run as the executor would.
class NodeProbe {
 public:
  NodeProbe(const Queue& queue, const nn::Model& model, std::size_t n, int keep_option,
            const nn::Declaration& declaration, const nn::Products& products, CacheSweep& sweep,
            DeviceTier& tier, const MeasuredGpu* gpu, const nn::DeviceTables* tables)
      : stopwatch_(gpu == nullptr ? host_seconds : stopwatch_of(*gpu->device)),
        model_(model),
        node_(*model.nodes[n]),
        spec_(model.graph.nodes[n]),
        keep_option_(keep_option),
        sweep_(sweep),
        tier_(tier) {
    const Precision precision = declaration.precision;
    const auto type = nn::compute_scalar_type(precision);
    if (gpu != nullptr) recorded_bytes_ = nn::recorded_bytes(declaration, spec_);
    context_.queue = queue;
    context_.precision = precision;
    context_.seed = 1;
    context_.step = 1;
    samples_.assign(static_cast<std::size_t>(model.batch), 0);
    if (gpu != nullptr) kept_samples_.emplace(gpu->staging->keep(samples_, "samples"));
    context_.samples = kept_samples_ ? kept_samples_->numbers().data() : samples_.data();
    context_.batch = model.batch;
    context_.products = &products;
    context_.tables = tables;
    for (const int input : spec_.inputs) {
      const plan::ValueSpec& value = model.graph.values[static_cast<std::size_t>(input)];
      inputs_.push_back(value.type == NumberType::Int64
                            ? tokens(queue, value.shape)
                            : random_tensor(queue, value.shape, nn::scalar_type_of(value.type)));
    }
    for (const int p : spec_.parameters) {
      const auto& parameter = model.graph.parameters[static_cast<std::size_t>(p)];
      parameters_.push_back(random_tensor(queue, parameter.shape, type));
      gradients_.push_back({at::zeros({parameter.elements},
                                      nn::tensor_options(queue, nn::state_scalar_type(precision))),
                            true});
    }
  }

  plan::CostRow measure() {
    plan::CostRow row;
    const std::int64_t base = tier_.live_bytes();
    set(median_seconds(
            enough_seconds, sweep_, [&] { forward(nullptr); }, stopwatch_),
        row.forward_seconds, row.forward_issue_seconds);
    tier_.reset_peak();
    {
      const at::Tensor output = forward(nullptr);
      row.value_bytes = tier_.live_bytes() - base;
      row.forward_transient_bytes = tier_.peak_bytes() - tier_.live_bytes() + recorded_bytes_;
    }
    if (spec_.kind == "logits_head") return row;
    const auto keep = [&] {
      nn::Record record = fresh_record();
      forward(&record);
    };
    set(median_seconds(enough_seconds, sweep_, keep, stopwatch_), row.forward_keep_seconds,
        row.forward_keep_issue_seconds);
    nn::Record record = fresh_record();
    tier_.reset_peak();
    const at::Tensor output = forward(&record);
    row.private_bytes = tier_.live_bytes() - base - row.value_bytes;
    row.forward_keep_transient_bytes = tier_.peak_bytes() - tier_.live_bytes() + recorded_bytes_;
    row.pinned = pinned_text();
    measure_backward(output, record, row);
    return row;
  }

 private:
  // All there are, in turn: kernels that add up the rows of a token, or go to a row of a table,
  // take other times where there is but one.
  at::Tensor tokens(const Queue& queue, const std::vector<std::int64_t>& shape) const {
    // The rows of the node's table, or what there are logits of.
    const plan::ModelGraph& graph = model_.graph;
    const std::int64_t all =
        spec_.parameters.empty()
            ? graph.values[static_cast<std::size_t>(spec_.inputs.front())].shape.back()
            : graph.parameters[static_cast<std::size_t>(spec_.parameters.front())].shape.front();
    const std::int64_t count =
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    return at::arange(count, nn::tensor_options(queue, at::kLong)).remainder_(all).view(shape);
  }

  static void set(const WorkSeconds& taken, double& seconds, double& issue_seconds) {
    seconds = taken.seconds;
    issue_seconds = taken.issue_seconds;
  }

  nn::Record fresh_record() const {
    nn::Record record;
    record.option = keep_option_;
    return record;
  }

  at::Tensor forward(nn::Record* record) const {
    return node_.forward(context_, inputs_, parameters_, record);
  }

  enum class Part { Whole, Weights, Inputs };

  void measure_backward(const at::Tensor& output, nn::Record& record, plan::CostRow& row) {
    const at::Tensor gradient = at::ones_like(output);
    std::vector<at::Tensor> add_to(inputs_.size());
    std::vector<bool> overwrite(inputs_.size(), false);
    const auto run = [&](nn::Record& used, Part part) {
      nn::BackwardArguments arguments;
      arguments.inputs = inputs_;
      arguments.output = output;
      arguments.output_gradient = gradient;
      arguments.parameters = parameters_;
      arguments.parameter_gradients = gradients_;
      arguments.weights = part != Part::Inputs;
      arguments.wanted.assign(inputs_.size(), part != Part::Weights);
      arguments.add_to = add_to;
      arguments.overwrite = overwrite;
      arguments.record = &used;
      // As where a step has several micro-batches: a product may take room for a factor other
      // than 1.
      arguments.loss_scale = 0.5;
      return node_.backward(context_, arguments);
    };
    // A backward may write over its record, so every run records anew and only the backward counts.
    const auto transients = [&](nn::Record& used, Part part) {
      const std::int64_t before = tier_.live_bytes();
      tier_.reset_peak();
      const auto gradients = run(used, part);
      return tier_.peak_bytes() - std::max(tier_.live_bytes(), before);
    };
    const auto measure = [&](Part part, double& seconds, double& issue_seconds,
                             std::int64_t& transient_bytes) {
      transient_bytes = transients(record, part);
      nn::Record again;
      set(median_seconds(
              enough_seconds,
              [&] {
                forward(&(again = fresh_record()));
                sweep_();
              },
              [&] { run(again, part); }, stopwatch_),
          seconds, issue_seconds);
    };
    const Part with_inputs = spec_.splits_backward ? Part::Inputs : Part::Whole;
    if (spec_.splits_backward)
      measure(Part::Weights, row.backward_weight_seconds, row.backward_weight_issue_seconds,
              row.backward_weight_transient_bytes);
    measure(with_inputs, row.backward_seconds, row.backward_issue_seconds,
            row.backward_transient_bytes);
    row.in_place_transient_bytes = row.backward_transient_bytes;
    bool in_place = false;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const auto offered = [&](const std::vector<bool>& by_input) {
        return !by_input.empty() && by_input[i];
      };
      if (offered(spec_.adds_in_place)) add_to[i] = at::zeros_like(inputs_[i]);
      overwrite[i] = !add_to[i].defined() && offered(spec_.overwrites_gradient);
      in_place = in_place || add_to[i].defined() || overwrite[i];
    }
    if (!in_place) return;
    nn::Record again = fresh_record();
    forward(&again);
    row.in_place_transient_bytes = transients(again, with_inputs);
  }

  std::string pinned_text() const {
    std::string text;
    const auto add = [&](const std::string& name) { text += (text.empty() ? "" : ", ") + name; };
    const plan::KeepOption& kept = spec_.keep_option(keep_option_);
    for (std::size_t i = 0; i < kept.pins_inputs.size(); ++i) {
      if (kept.pins_inputs[i]) add(fmt::format("input {}", i));
    }
    if (kept.pins_output) add("output");
    return text;
  }

  const Stopwatch stopwatch_;
  const nn::Model& model_;
  const nn::Node& node_;
  const plan::NodeSpec& spec_;
  int keep_option_;
  std::int64_t recorded_bytes_ = 0;  // of a forward in a graph; the probe is outside
  CacheSweep& sweep_;
  DeviceTier& tier_;
  nn::Context context_;
  std::vector<std::int64_t> samples_;
  std::optional<Staging::Kept> kept_samples_;  // where a GPU reads them
  std::vector<at::Tensor> inputs_;
  std::vector<at::Tensor> parameters_;
  std::vector<nn::ParameterGradient> gradients_;
};

}  // namespace

std::vector<std::string> product_keys(const nn::Model& model, Precision precision) {
  std::vector<std::string> keys;
  for (const nn::ProductShape& shape : product_shapes(model, precision))
    keys.push_back(nn::product_key(shape));
  return keys;
}

void profile_model(const Queue& queue, const nn::Model& model, const nn::Declaration& declaration,
                   plan::CostTable& table, const std::function<void(int, int)>& progress,
                   const MeasuredGpu* gpu) {
  const at::NoGradGuard no_gradients;
  std::optional<DeviceTier> own;
  if (gpu == nullptr) own.emplace(no_limit);
  DeviceTier& tier = gpu == nullptr ? *own : *gpu->tier;
  const DeviceScope scope(tier);
  nn::Products products = nn::Products::from_json(table.products);
  std::vector<nn::ProductShape> shapes = product_shapes(model, declaration.precision);
  std::erase_if(shapes, [&](const nn::ProductShape& shape) { return products.has(shape); });
  std::vector<std::pair<std::size_t, int>> nodes;  // and the way in which they are kept
  std::set<std::string> seen;
  for (std::size_t n = 0; n < model.graph.nodes.size(); ++n) {
    const plan::NodeSpec& node = model.graph.nodes[n];
    if (node.communicates()) continue;
    for (int k = 0; k < node.keep_options(); ++k) {
      const std::string key = plan::cost_key_of(node, k);
      if (table.rows.count(key) == 0 && seen.insert(key).second) nodes.emplace_back(n, k);
    }
  }
  const int all = static_cast<int>(shapes.size() + nodes.size());
  int done = 0;
  if (gpu != nullptr && all > 0) warm_up(queue, *gpu);
  for (const auto& shape : shapes) {
    choose_product(queue, shape, declaration, tier, products, table.product_roof, gpu);
    progress(++done, all);
  }
  table.products = products.to_json();
  CacheSweep sweep(queue, model, declaration.element_bytes(),
                   gpu == nullptr ? most_swept : most_swept_on_gpu);
  const nn::DeviceTables tables =
      gpu == nullptr ? nn::DeviceTables()
                     : make_device_tables(queue, model, declaration.precision, *gpu->staging);
  for (const auto& [n, option] : nodes) {
    tier.set_activity("a profile of " + model.graph.nodes[n].name);
    NodeProbe probe(queue, model, n, option, declaration, products, sweep, tier, gpu,
                    gpu == nullptr ? nullptr : &tables);
    table.rows.emplace(plan::cost_key_of(model.graph.nodes[n], option), probe.measure());
    progress(++done, all);
  }
}

void profile_step(const Queue& queue, const optim::Optimizer& optimizer, const std::string& name,
                  Precision precision, plan::CostTable& table, const MeasuredGpu* gpu) {
  const std::string norm_key = plan::step_cost_key("norm", precision_name(precision));
  const std::string update_key = plan::step_cost_key(name, precision_name(precision));
  if (table.rows.count(norm_key) > 0 && table.rows.count(update_key) > 0) return;
  const at::NoGradGuard no_gradients;
  std::optional<DeviceScope> scope;
  if (gpu != nullptr) scope.emplace(*gpu->tier);
  if (gpu != nullptr) warm_up(queue, *gpu);
  const Stopwatch stopwatch = gpu == nullptr ? host_seconds : stopwatch_of(*gpu->device);
  const auto made = [&] {
    return random_tensor(queue, {plan::step_cost_elements}, nn::state_scalar_type(precision))
        .abs_();
  };
  optim::ParameterUpdate update;
  update.parameter = made();
  update.gradient = made();
  constexpr std::int64_t rows = 1024;
  static_assert(plan::step_cost_elements % rows == 0);
  const MatrixSides sides{rows, plan::step_cost_elements / rows};
  update.part = kernels::whole_matrix(sides.rows, sides.columns);
  for (const StateSpec& state : optimizer.states()) {
    const bool elementwise = state.blocks.elementwise() && state.type == StateType::OfRun;
    update.states.push_back(
        elementwise ? made()
                    : at::zeros({state.blocks.count(plan::step_cost_elements, sides)},
                                nn::tensor_options(queue, scalar_type_of(state, precision))));
  }
  if (has_master(precision)) {
    update.compute_copy = update.parameter.to(nn::compute_scalar_type(precision));
  }
  update.decays = update.matrix = true;
  const std::vector<TensorSums> sums = optimizer.sums();
  for (const TensorSums& round : sums)
    update.sums.push_back(at::zeros({round.count(sides)}, nn::tensor_options(queue, at::kDouble)));
  plan::CostRow norm;
  const at::Tensor total = at::zeros({1}, nn::tensor_options(queue, at::kDouble));
  const WorkSeconds of_norm = shortest_seconds(
      enough_seconds,
      [&] {
        kernels::add_sum_of_squares(queue, nn::element_type_of(update.gradient),
                                    update.gradient.const_data_ptr(), update.gradient.numel(),
                                    total.data_ptr<double>());
      },
      stopwatch);
  norm.forward_seconds = of_norm.seconds;
  norm.forward_issue_seconds = of_norm.issue_seconds;
  plan::CostRow updating;
  const WorkSeconds of_update = shortest_seconds(
      enough_seconds, [&] { optimizer.update(queue, update, 1, 1e-6, {.value = 1.0}); }, stopwatch);
  updating.forward_seconds = of_update.seconds;
  updating.forward_issue_seconds = of_update.issue_seconds;
  table.rows[norm_key] = norm;
  table.rows[update_key] = updating;
  if (sums.empty()) return;
  // Of all rounds on average: each has an instruction of its own.
  plan::CostRow summing;
  for (std::size_t round = 0; round < sums.size(); ++round) {
    const WorkSeconds of_sums = shortest_seconds(
        enough_seconds, [&] { optimizer.add_sums(queue, update, round, 1, 1e-6, {.value = 1.0}); },
        stopwatch);
    summing.forward_seconds += of_sums.seconds / static_cast<double>(sums.size());
    summing.forward_issue_seconds += of_sums.issue_seconds / static_cast<double>(sums.size());
  }
  table.rows[plan::step_cost_key(plan::sums_of(name), precision_name(precision))] = summing;
}

void compute_a_while(const Queue& queue) {
  constexpr std::int64_t side = 512;
  const at::TensorOptions options = nn::tensor_options(queue, at::kFloat);
  const at::Tensor matrix = at::ones({side, side}, options);
  at::Tensor product = at::empty({side, side}, options);
  at::mm_out(product, matrix, matrix);
}

}  // namespace garonne::exec
