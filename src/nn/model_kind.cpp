#include "nn/model_kind.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"

namespace garonne::nn {
namespace {

// Throws where a key of which `mine` holds is not at its default.
void refuse_changed_keys(const RunConfig& config,
                         const std::function<bool(const std::string&)>& mine) {
  const RunConfig defaults;
  for (const auto& key : config_keys()) {
    if (!mine(key.name) || key.get(config) == key.get(defaults)) continue;
    throw ConfigError(
        key.name, key.get(config),
        fmt::format("has no meaning for model.kind = {}; leave it out", config.model.kind));
  }
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

// Its function is in a file of its own.
#define GARONNE_MODEL_KIND(describe) \
  extern ModelKind describe();       \
  kinds.push_back(describe())

const std::vector<ModelKind>& model_kinds() {
  static const std::vector<ModelKind> registry = [] {
    std::vector<ModelKind> kinds;
    GARONNE_MODEL_KIND(gpt_kind);
    GARONNE_MODEL_KIND(llama_kind);
    GARONNE_MODEL_KIND(fno_kind);
    GARONNE_MODEL_KIND(tfno_kind);
    GARONNE_MODEL_KIND(ufno_kind);
    GARONNE_MODEL_KIND(afno_kind);
    GARONNE_MODEL_KIND(sfno_kind);
    return kinds;
  }();
  return registry;
}

#undef GARONNE_MODEL_KIND

const ModelKind& model_kind(const std::string& name) {
  std::vector<std::string> names;
  for (const ModelKind& kind : model_kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  throw ConfigError("model.kind", name,
                    fmt::format("is no model of this build; there are {}", fmt::join(names, ", ")));
}

std::vector<std::string> loss_names() {
  std::vector<std::string> names = {"auto"};
  for (const ModelKind& kind : model_kinds()) {
    for (const std::string& loss : kind.losses) {
      if (!contains(names, loss)) names.push_back(loss);
    }
  }
  return names;
}

void refuse_unused_keys(const RunConfig::Model& keys, const ModelKind& kind) {
  RunConfig given;
  given.model = keys;
  refuse_changed_keys(given, [&](const std::string& name) {
    const std::string section = "model.";
    return name.rfind(section, 0) == 0 && name != "model.kind" &&
           !contains(kind.keys, name.substr(section.size()));
  });
}

void refuse_meaningless_keys(const RunConfig& config, const std::vector<std::string>& keys) {
  refuse_changed_keys(config, [&](const std::string& name) { return contains(keys, name); });
}

}  // namespace garonne::nn
