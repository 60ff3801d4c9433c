#include "nn/autograd_graph.hpp"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>
#include <optional>

#include "base/error.hpp"

namespace garonne::nn {
namespace {

using torch::autograd::Edge;
using torch::autograd::Engine;
using torch::autograd::SavedVariableHooks;
using torch::autograd::variable_list;

enum class Source { Private, Input, Parameter, Output };

// One saved tensor of a graph.
struct Slot {
  Source source = Source::Private;
  std::size_t position = 0;  // which input or parameter; which private storage
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;
  at::Tensor saved;  // until the forward is over
};

struct Graph {
  Edge root;
  std::vector<std::shared_ptr<torch::autograd::Node>> sinks;  // inputs, then parameters
  std::vector<std::shared_ptr<Slot>> slots;
  BackwardArguments* arguments = nullptr;  // while the backward runs
};

thread_local Graph* recording = nullptr;

struct NamingHooks : SavedVariableHooks {
  explicit NamingHooks(Graph* owner) : graph(owner), slot(std::make_shared<Slot>()) {
    graph->slots.push_back(slot);
  }

  void call_pack_hook(const at::Tensor& saved) override { slot->saved = saved.detach(); }

  at::Tensor call_unpack_hook() override {
    expect(graph->arguments != nullptr, "a record is read outside its backward");
    const BackwardArguments& arguments = *graph->arguments;
    const at::Tensor& base =
        slot->source == Source::Private     ? arguments.record->slots.at(slot->position)
        : slot->source == Source::Input     ? arguments.inputs.at(slot->position)
        : slot->source == Source::Parameter ? arguments.parameters.at(slot->position)
                                            : arguments.output;
    expect(base.defined(), "a backward reads a tensor that its node did not pin");
    return base.as_strided(slot->sizes, slot->strides, slot->offset);
  }

  std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>> retrieve_unpack_hook_data()
      const override {
    return std::nullopt;
  }

  Graph* graph;
  std::shared_ptr<Slot> slot;
};

struct HookedEngine : Engine {
  std::unique_ptr<SavedVariableHooks> get_default_saved_variable_hooks() override {
    return recording == nullptr ? nullptr : std::make_unique<NamingHooks>(recording);
  }
};

Engine& hooked_engine() {
  // Never destroyed: the engine's threads may outlive main.
  static auto* engine = new HookedEngine();
  return *engine;
}

void install_engine() {
  static std::once_flag once;
  std::call_once(once, [] { torch::autograd::set_default_engine_stub(hooked_engine); });
}

struct Sink : torch::autograd::Node {
  variable_list apply(variable_list&& gradients) override { return std::move(gradients); }
};

at::Tensor enter(const at::Tensor& value, const std::shared_ptr<torch::autograd::Node>& sink) {
  at::Tensor alias = value.detach();
  sink->add_input_metadata(alias);
  torch::autograd::impl::set_gradient_edge(alias, Edge(sink, 0));
  return alias;
}

struct RecordingScope {
  explicit RecordingScope(Graph* graph) { recording = graph; }
  ~RecordingScope() { recording = nullptr; }
};

const void* storage_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

std::optional<std::size_t> position_of(const void* storage,
                                       const std::vector<at::Tensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (storage_of(tensors[i]) == storage) return i;
  }
  return std::nullopt;
}

// A saved output may be a view made before the executor knew the output, so slots are named only
// now.
void name_slots(Graph& graph, const std::vector<at::Tensor>& inputs,
                const std::vector<at::Tensor>& parameters, const at::Tensor& output,
                Record& record) {
  for (const auto& slot : graph.slots) {
    const void* storage = storage_of(slot->saved);
    slot->sizes = slot->saved.sizes().vec();
    slot->strides = slot->saved.strides().vec();
    slot->offset = slot->saved.storage_offset();
    if (const auto input = position_of(storage, inputs)) {
      slot->source = Source::Input;
      slot->position = *input;
    } else if (const auto parameter = position_of(storage, parameters)) {
      slot->source = Source::Parameter;
      slot->position = *parameter;
    } else if (storage == storage_of(output)) {
      slot->source = Source::Output;
    } else {
      const auto known = position_of(storage, record.slots);
      slot->position = known.value_or(record.slots.size());
      if (!known) record.slots.push_back(slot->saved);
    }
    slot->saved.reset();
  }
}

}  // namespace

at::Tensor record_forward(const Differentiable& function, const std::vector<at::Tensor>& inputs,
                          const std::vector<at::Tensor>& parameters, Record& record) {
  install_engine();
  const auto graph = std::make_shared<Graph>();
  at::Tensor output;
  {
    const at::AutoGradMode with_gradients(true);
    const RecordingScope scope(graph.get());
    std::vector<at::Tensor> aliases[2];
    const std::vector<at::Tensor>* const sources[2] = {&inputs, &parameters};
    for (int kind = 0; kind < 2; ++kind) {
      for (const auto& tensor : *sources[kind]) {
        graph->sinks.push_back(std::make_shared<Sink>());
        aliases[kind].push_back(enter(tensor, graph->sinks.back()));
      }
    }
    const at::Tensor result = function(aliases[0], aliases[1]);
    graph->root = torch::autograd::impl::gradient_edge(result);
    output = result.detach();
  }
  name_slots(*graph, inputs, parameters, output, record);
  record.graph = graph;
  return output;
}

PinnedNames pinned_names(const Record& record) {
  const auto& graph = *static_cast<const Graph*>(record.graph.get());
  PinnedNames names;
  for (const auto& slot : graph.slots) {
    if (slot->source == Source::Output) names.output = true;
    if (slot->source != Source::Input && slot->source != Source::Parameter) continue;
    auto& flags = slot->source == Source::Input ? names.inputs : names.parameters;
    if (flags.size() <= slot->position) flags.resize(slot->position + 1, false);
    flags[slot->position] = true;
  }
  return names;
}

std::vector<at::Tensor> backward_of_record(BackwardArguments& arguments) {
  auto& graph = *static_cast<Graph*>(arguments.record->graph.get());
  graph.arguments = &arguments;
  torch::autograd::edge_list wanted;
  for (const auto& sink : graph.sinks) wanted.emplace_back(sink, 0);
  auto gradients =
      Engine::get_default_engine().execute({graph.root}, {arguments.output_gradient},
                                           /*keep_graph=*/false, /*create_graph=*/false,
                                           /*accumulate_grad=*/false, wanted);
  graph.arguments = nullptr;
  arguments.record->graph.reset();
  return gradients;
}

at::Tensor AutogradNode::forward(const Context& context, const std::vector<at::Tensor>& inputs,
                                 const std::vector<at::Tensor>& parameters, Record* record) const {
  if (record != nullptr) return record_forward(function(context), inputs, parameters, *record);
  const at::NoGradGuard no_gradients;
  return function(context)(inputs, parameters);
}

std::vector<at::Tensor> AutogradNode::backward(const Context&, BackwardArguments& arguments) const {
  auto gradients = backward_of_record(arguments);
  const std::size_t inputs = arguments.inputs.size();
  for (std::size_t p = 0; p < arguments.parameter_gradients.size(); ++p) {
    ParameterGradient& gradient = arguments.parameter_gradients[p];
    const at::Tensor flat = gradients.at(inputs + p).reshape({-1});
    if (gradient.accumulate) {
      gradient.target.add_(flat);
    } else {
      gradient.target.copy_(flat);
    }
  }
  gradients.resize(inputs);
  return gradients;
}

}  // namespace garonne::nn
