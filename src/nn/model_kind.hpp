// Kinds of models by `model.kind`: GPT and the operators alike. A new one is one file, which says
// all of this about it, and one line of the registry (model_kind.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "nn/decoding.hpp"
#include "nn/fields/field_model.hpp"
#include "nn/model.hpp"

namespace garonne::nn {

class FieldNetwork;
struct FieldNetworkArguments;

// What a model learns from.
enum class LearnsFrom { Tokens, Fields };

// What a model is made of.
struct ModelRequest {
  const RunConfig& config;
  std::int64_t vocabulary = 0;  // that the data have; of tokens
  const FieldShape& fields;     // of fields
  const Declaration& declaration;
  // Whose part of the tensor group's model; graphs are equal on all of them.
  int tensor = 0;
  int tensor_ranks = 1;
};

struct ModelKind {
  std::string name;
  std::vector<std::string> keys;  // of [model] that it uses, without "model." and without kind
  LearnsFrom learns_from = LearnsFrom::Fields;
  std::vector<std::string> losses;  // what train.loss may be besides auto, which is the first
  // The model that is trained, for micro-batches of train.micro_batch. Throws ConfigError for keys
  // that do not fit together, to the data or to the part, or that are not its own and not at their
  // default.
  std::function<Model(const ModelRequest&)> make;
  // Its sizes in the field's own words, on one line.
  std::function<std::string(const ModelRequest&)> describe;
  // Of kinds that learn from tokens: the same parameters and blocks, for the logits of one row of
  // one sample, the first elements of the last value, on all tensor ranks.
  std::function<Model(const ModelRequest&, const GeneratorRows&)> make_generator = nullptr;
  // Of kinds that learn from fields; nn/operators/field_network.hpp. The first adds the parameters
  // and throws ConfigError; the second gives the rows of a member, and throws ConfigError
  // (grid.tensor) where the field cannot be cut for so many.
  std::unique_ptr<FieldNetwork> (*network)(const FieldNetworkArguments& arguments) = nullptr;
  FieldRows (*rows)(const RunConfig::Model& keys, const FieldShape& whole,
                    const FieldCut& cut) = nullptr;
};

const std::vector<ModelKind>& model_kinds();

// Throws ConfigError (model.kind) for one that there is not.
const ModelKind& model_kind(const std::string& name);

// What train.loss may be: auto, then the losses of all kinds.
std::vector<std::string> loss_names();

// Throws ConfigError for a key of [model] that is not at its default and not one of the kind's.
void refuse_unused_keys(const RunConfig::Model& keys, const ModelKind& kind);

// Throws ConfigError for one of `keys` that is not at its default: it means nothing for this kind.
void refuse_meaningless_keys(const RunConfig& config, const std::vector<std::string>& keys);

}  // namespace garonne::nn
