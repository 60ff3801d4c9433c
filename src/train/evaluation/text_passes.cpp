#include "train/evaluation/text_passes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "base/bytes.hpp"
#include "base/error.hpp"
#include "nn/element_type.hpp"
#include "plan/program/replay.hpp"
#include "plan/step/workspace_buffer.hpp"

namespace garonne::train {
namespace {

// The buffer of a node's keys and values is that of a workspace so called.
std::string kept_name(const std::string& node) {
  return node + ".keys_and_values";
}

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

// The value in the stage's part of a model; -1 where another stage makes it.
int value_called(const plan::ModelGraph& graph, const std::string& name) {
  for (const plan::NodeSpec& node : graph.nodes) {
    if (graph.values[static_cast<std::size_t>(node.output)].name == name) return node.output;
  }
  return -1;
}

// What a generator ends in, cut over tensor ranks or not.
int logits_of(const plan::ModelGraph& graph) {
  const int gathered = value_called(graph, "gathered_logits");
  return gathered >= 0 ? gathered : value_called(graph, "logits");
}

}  // namespace

struct TextPasses::Pass {
  std::int64_t rows = 0;
  Setup setup;
  plan::Program program;
  std::int64_t planned_peak_bytes = 0;
  std::unique_ptr<exec::Executor> executor;
};

TextPasses::TextPasses(const Setup& setup, const exec::RankResources& resources,
                       const ParameterPlacement& placement, std::int64_t budget_bytes,
                       std::int64_t prompt, std::int64_t longest, dist::Session& session)
    : setup_(setup),
      resources_(resources),
      placement_(placement),
      budget_bytes_(budget_bytes),
      rank_(session.rank()) {
  const std::int64_t window = setup.config.model.sequence;
  expect(prompt >= 1 && longest >= prompt, "a text begins with its prompt");
  std::string why;
  if (prompt >= window) {
    why = fmt::format("the text is as long as model.sequence = {}", window);
  } else if (longest == prompt) {
    why = "no more than one token is asked for";
  } else if (!plan_keeping(prompt, longest, session)) {
    why = fmt::format(
        "keys and values of {} positions would take the peak to {}, and the budget is {}",
        std::min(longest, window), format_bytes(planned_peak_bytes_), format_bytes(budget_bytes_));
  }
  if (!next_) plan_whole(longest, session);
  for (Pass* const pass : {whole_.get(), prompt_.get(), next_.get()}) {
    if (pass == nullptr) continue;
    pass->executor = std::make_unique<exec::Executor>(pass->setup.model, pass->program, resources_);
  }
  if (!next_) {
    description_ = "each token is a pass over the whole text: " + why;
    return;
  }
  description_ = fmt::format("keys and values of {} positions are kept in {}",
                             std::min(longest, window), format_bytes(kept_bytes_));
  if (longest > window) {
    description_ +=
        fmt::format("; beyond them each token is a pass over the last {} tokens", window);
  }
}

TextPasses::~TextPasses() = default;

// False where some rank has no room; nothing is left of it then but the peak.
bool TextPasses::plan_keeping(std::int64_t prompt, std::int64_t longest, dist::Session& session) {
  const std::int64_t window = setup_.config.model.sequence;
  const std::int64_t positions = std::min(longest, window);
  session.agree([&] {
    next_ = plan_pass(1, positions);
    if (prompt > 1) prompt_ = plan_pass(prompt, positions);
    if (longest > window) whole_ = plan_pass(window, 0);
  });
  std::int64_t peak = 0;
  for (const Pass* const pass : {whole_.get(), prompt_.get(), next_.get()}) {
    if (pass != nullptr) peak = std::max(peak, pass->planned_peak_bytes);
  }
  std::int64_t kept = 0;
  for (const std::string& name : kept_here_)
    kept += setup_.declaration.tensor(elements_of(decoding_->kept.at(name).shape));
  const auto most = session.all_reduce_max(std::vector<std::int64_t>{peak, kept});
  planned_peak_bytes_ = most[0];
  if (planned_peak_bytes_ > budget_bytes_) {
    for (std::unique_ptr<Pass>* const pass : {&whole_, &prompt_, &next_}) pass->reset();
    kept_here_.clear();
    return false;
  }
  kept_bytes_ = most[1];
  prompt_tokens_ = static_cast<std::size_t>(prompt);
  make_kept();
  return true;
}

void TextPasses::plan_whole(std::int64_t longest, dist::Session& session) {
  // Of keys and values that found no room, which may need less than the whole text does.
  const std::int64_t kept = planned_peak_bytes_;
  session.agree([&] {
    whole_ = plan_pass(std::min(longest, setup_.config.model.sequence), 0);
    const std::int64_t whole = whole_->planned_peak_bytes;
    if (whole > budget_bytes_) {
      throw PlanError(kept > 0 ? std::min(kept, whole) : whole, budget_bytes_,
                      "that is for generating text" + placement_.advice());
    }
  });
  planned_peak_bytes_ = session.all_reduce_max(std::vector{whole_->planned_peak_bytes})[0];
}

void TextPasses::make_kept() {
  const exec::DeviceScope scope(*resources_.tier);
  exec::BufferStore& buffers = resources_.state->buffers;
  for (const std::string& name : kept_here_) {
    nn::Decoding::Kept& kept = decoding_->kept.at(name);
    const std::string buffer = plan::workspace_buffer(kept_name(name));
    buffers.make(buffer, Tier::Device, kept.shape,
                 nn::compute_scalar_type(setup_.declaration.precision));
    kept.tensor = buffers.tensor(buffer);
  }
}

// Live in every pass, those that do not look at them included.
void TextPasses::add_kept_buffers(Setup& setup) const {
  for (const std::string& name : kept_here_) {
    const std::int64_t elements = elements_of(decoding_->kept.at(name).shape);
    setup.step.workspaces.push_back({kept_name(name), setup.declaration.tensor(elements)});
  }
}

std::unique_ptr<TextPasses::Pass> TextPasses::plan_pass(std::int64_t rows,
                                                        std::int64_t kept_positions) {
  auto pass = std::make_unique<Pass>();
  pass->rows = rows;
  pass->setup = setup_of_generator(setup_, {rows, kept_positions, decoding_}, rank_);
  const plan::ModelGraph& graph = pass->setup.model.graph;
  if (kept_positions > 0 && kept_here_.empty()) {
    for (const plan::NodeSpec& node : graph.nodes) {
      if (decoding_->kept.contains(node.name)) kept_here_.push_back(node.name);
    }
  }
  add_kept_buffers(pass->setup);
  pass->program =
      placement_.place(plan::make_forward_program(graph, pass->setup.step, logits_of(graph)));
  if (setup_.grid.ranks() > 1)
    pass->program = program_of_rank(pass->setup, std::move(pass->program), rank_);
  pass->planned_peak_bytes = plan::replay(pass->program).peak_bytes;
  return pass;
}

std::vector<double> TextPasses::logits_after(const std::vector<std::uint32_t>& text) {
  const auto window = static_cast<std::size_t>(setup_.config.model.sequence);
  if (!next_ || text.size() > window) {
    const std::size_t first = text.size() > window ? text.size() - window : 0;
    return run(*whole_, text, first, 0);
  }
  if (text.size() == prompt_tokens_) {
    // Once for all continuations.
    if (known_.empty()) {
      after_prompt_ = run(prompt_ ? *prompt_ : *next_, text, 0, 0);
      known_ = text;
    }
    return after_prompt_;
  }
  const std::size_t position = text.size() - 1;
  expect(known_.size() >= position && std::equal(text.begin(), text.end() - 1, known_.begin()),
         "a text goes on from what is kept");
  known_ = text;
  return run(*next_, text, position, position);
}

// The tokens from `first` on, the first of which is at `position`. Attention is causal: what stands
// after the last token changes nothing before it.
std::vector<double> TextPasses::run(Pass& pass, const std::vector<std::uint32_t>& text,
                                    std::size_t first, std::size_t position) {
  decoding_->first = static_cast<std::int64_t>(position);
  decoding_->asked = static_cast<std::int64_t>(text.size() - first) - 1;
  exec::StepInputs inputs;
  inputs.training = false;
  inputs.load = [&](int) {
    std::vector<std::int64_t> tokens(text.begin() + static_cast<std::ptrdiff_t>(first), text.end());
    tokens.resize(static_cast<std::size_t>(pass.rows), 0);
    return exec::HostBatch{{0}, {{"tokens", std::move(tokens)}}, {}};
  };
  exec::StepOutputs outputs = pass.executor->run(inputs);
  peak_bytes_ = std::max(peak_bytes_, outputs.peak_bytes);
  return std::move(outputs.report);
}

}  // namespace garonne::train
