#include "nn/gpt/text_model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace garonne::nn {

std::int64_t whole_vocabulary(const RunConfig::Model& keys, std::int64_t vocabulary) {
  if (keys.vocabulary > 0 && keys.vocabulary < vocabulary) {
    throw ConfigError("model.vocabulary", fmt::format("{}", keys.vocabulary),
                      fmt::format("is smaller than the data's vocabulary of {}", vocabulary));
  }
  return std::max(keys.vocabulary, vocabulary);
}

void check_text_keys(const ModelRequest& request) {
  const RunConfig& config = request.config;
  const ModelKind& kind = model_kind(config.model.kind);
  refuse_unused_keys(config.model, kind);
  refuse_meaningless_keys(
      config, {"data.history", "data.inputs", "data.layout", "data.lead", "data.missing",
               "data.normalisation", "data.period", "data.statistics", "data.stride",
               "data.targets", "data.validation_period", "train.decode", "train.members",
               "train.noise", "train.push_forward", "train.rollout"});
  if (config.train.loss != "auto" && config.train.loss != kind.losses.front()) {
    throw ConfigError("train.loss", config.train.loss,
                      "is no loss of tokens; give " + kind.losses.front());
  }
}

TransformerPart part_of(const ModelRequest& request) {
  return {request.tensor, request.tensor_ranks, request.config.grid.sequence_parallel,
          request.config.grid.tensor_wire == "compute"};
}

Model make_text_model(
    const Declaration& declaration, std::int64_t batch, std::int64_t sequence,
    const std::function<void(ModelBuilder& builder, int tokens, int targets)>& write) {
  ModelBuilder builder(declaration);
  const int tokens = builder.add_input("tokens", {batch * sequence});
  const int targets = builder.add_input("targets", {batch * sequence});
  write(builder, tokens, targets);
  Model model = builder.take();
  model.batch = batch;
  model.sequence = sequence;
  return model;
}

Model make_text_generator(const Declaration& declaration, const GeneratorRows& rows,
                          const std::function<void(ModelBuilder& builder, int tokens)>& write) {
  expect(rows.count > 0 && rows.decoding, "a generator has rows of a text");
  ModelBuilder builder(declaration);
  const int tokens = builder.add_input("tokens", {rows.count});
  write(builder, tokens);
  Model model = builder.take();
  model.batch = 1;
  model.sequence = rows.count;
  return model;
}

}  // namespace garonne::nn
