#include "train/initial_parameters.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <string_view>

#include "base/contains.hpp"
#include "base/error.hpp"
#include "base/printable.hpp"
#include "nn/element_type.hpp"
#include "nn/model_kind.hpp"
#include "train/run/run_tokenizer.hpp"
#include "train/setup/config_choices.hpp"

namespace garonne::train {
namespace {

namespace fs = std::filesystem;

// In the run directory, of which a checkpoint is two folders below.
fs::path run_of(const StartingPoint& start) {
  return fs::path(start.checkpoint).parent_path().parent_path();
}

// Two files may make the same ids of all texts.
bool makes_same_ids(const StartingPoint& start, const std::string& saved,
                    const Workload& workload) {
  if (!data::is_known_tokenizer(saved) || !data::is_known_tokenizer(workload.facts().tokenizer))
    return false;
  const std::string file = data::tokenizer_file(saved);
  std::error_code error;
  if (!file.empty() && !fs::exists(run_of(start) / file, error)) return false;
  const auto theirs = tokenizer_of_run(run_of(start).string(), saved, "");
  const auto ours = workload.tokenizer();
  return theirs && ours && data::same_ids(*theirs, *ours);
}

// Keys that say what is computed and cannot be seen in the names and shapes of parameters.
constexpr std::array<std::string_view, 11> unseen_keys = {
    "kind",        "heads",  "kv_heads",           "rope_theta",        "norm_epsilon",
    "padding",     "levels", "sparsity_threshold", "hard_thresholding", "spectral_weights",
    "scale_factor"};

bool has_key(const RunConfig& config, std::string_view key) {
  return key == "kind" || contains(nn::model_kind(config.model.kind).keys, std::string(key));
}

std::string value_of(const RunConfig& config, const std::string& key) {
  // What 0 stands for.
  if (key == "model.kv_heads" && config.model.kv_heads == 0)
    return fmt::format("{}", config.model.heads);
  const auto& keys = config_keys();
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const KeySpec& spec) { return spec.name == key; });
  expect(found != keys.end(), "no key " + key);
  return found->get(config);
}

void expect_same_keys(const StartingPoint& start, const RunConfig& saved, const RunConfig& config,
                      const std::vector<std::string>& changes, const Note& note) {
  for (const std::string_view name : unseen_keys) {
    if (!has_key(saved, name) || !has_key(config, name)) continue;
    const std::string key = fmt::format("model.{}", name);
    const std::string before = value_of(saved, key);
    const std::string now = value_of(config, key);
    if (before == now) continue;
    if (!contains(changes, key)) {
      // Other kinds have parameters of other names.
      const std::string other =
          name == "kind"
              ? ""
              : fmt::format(", or take them up for the other one by `--init-change {}`", key);
      throw ConfigError(
          key, now,
          fmt::format("the parameters of {} are of a model with {}, and another one computes "
                      "something else from them; set it to that{}",
                      start.checkpoint, before, other));
    }
    note(fmt::format("{} is {}, and was {} in {}", key, now, before, start.checkpoint));
  }
}

void expect_known(const std::vector<std::string>& changes) {
  std::vector<std::string> names;
  for (const std::string_view name : unseen_keys) names.push_back(fmt::format("model.{}", name));
  for (const std::string& change : changes) {
    if (contains(names, change)) continue;
    throw ConfigError("--init-change", change,
                      fmt::format("is none of the keys that it is for: {}; others are free to "
                                  "change or make parameters of other shapes",
                                  fmt::join(names, ", ")));
  }
}

void expect_same_shapes(const StartingPoint& start, const nn::Model& model, Precision precision,
                        const std::string& precision_key) {
  const std::string type = nn::state_scalar_type(precision) == at::kDouble ? "F64" : "F32";
  std::map<std::string, const GlobalTensor*> saved;
  for (const GlobalTensor& tensor : start.manifest.tensors) saved[tensor.name] = &tensor;
  for (std::size_t p = 0; p < model.graph.parameters.size(); ++p) {
    const std::string& name = model.graph.parameters[p].name;
    const auto found = saved.find(name);
    if (found == saved.end()) continue;
    const GlobalTensor& there = *found->second;
    const std::vector<std::int64_t>& shape = model.boxes[p].global;
    if (there.shape != shape) {
      throw IoError(
          start.checkpoint,
          fmt::format("is of another model: {} is {} [{}] there and {} [{}] here", name, there.type,
                      fmt::join(there.shape, ", "), type, fmt::join(shape, ", ")));
    }
    if (there.type == type) continue;
    const bool doubles = there.type == "F64";
    throw IoError(
        start.checkpoint,
        fmt::format("holds {} as {}, and train.precision = \"{}\" trains {}; set train.precision "
                    "to {}",
                    name, printable(there.type), precision_key, type,
                    doubles ? "\"float64\"" : "\"float32\" or \"bfloat16\""));
  }
}

}  // namespace

StartingPoint initial_point(const std::string& path, const Note& warn) {
  std::error_code error;
  if (fs::exists(path + "/manifest.json", error)) {
    StartingPoint point;
    point.checkpoint = path;
    point.manifest = verify_checkpoint(path);
    point.step = point.manifest.step;
    return point;
  }
  StartingPoint newest = newest_whole_checkpoint(path, warn, "give another one to --init-from");
  if (newest.checkpoint.empty()) {
    throw ConfigError("--init-from", path,
                      "is neither a checkpoint nor a run directory that has one; `garonne "
                      "checkpoint import` makes one of a model of Hugging Face");
  }
  return newest;
}

Beginning beginning_with(const StartingPoint& start, const std::string& given,
                         const AllowedTensors& allowed, const std::vector<std::string>& changes) {
  std::error_code error;
  const std::string whole = fs::absolute(start.checkpoint, error).lexically_normal().string();
  if (!is_utf8(whole) || !is_utf8(given)) {
    throw ConfigError("--init-from", printable(given),
                      "is no UTF-8, so the run could not remember it; give another name");
  }
  return {.given = given,
          .checkpoint = error ? start.checkpoint : whole,
          .step = start.step,
          .manifest = start.manifest.hash,
          .missing = allowed.missing,
          .unused = allowed.unused,
          .changes = changes};
}

void expect_same_tokenizer(const StartingPoint& start, const Workload& workload,
                           const std::string& path, const Note& note) {
  const Manifest& manifest = start.manifest;
  if (!manifest.data.is_object()) return;
  const std::string saved = manifest.data.value("tokenizer", std::string());
  const std::string& given = workload.facts().tokenizer;
  if (saved.empty() || saved == given) return;
  if (given.empty()) {
    note(
        fmt::format("{} does not say its tokenizer; its ids are taken for those of {}, which the "
                    "checkpoint was trained on",
                    path, saved));
    return;
  }
  if (makes_same_ids(start, saved, workload)) return;
  std::string tokenizer = "byte";
  if (saved != tokenizer && data::is_known_tokenizer(saved))
    tokenizer = (run_of(start) / data::tokenizer_file(saved)).string();
  throw ConfigError("data.path", path,
                    fmt::format("has tokens of the tokenizer {}, and the checkpoint was trained on "
                                "those of {}; make the data with the run's tokenizer, `garonne "
                                "data text --tokenizer {} …`",
                                given, saved, tokenizer));
}

void expect_same_model(const StartingPoint& start, const RunConfig& config, const nn::Model& model,
                       Precision precision, const AllowedTensors& allowed,
                       const std::vector<std::string>& changes, const Note& note) {
  expect_known(changes);
  // Nobody said it of what was written without a run.
  if (!start.manifest.config.empty()) {
    const std::string path = start.checkpoint + "/manifest.json";
    RunConfig saved;
    try {
      saved = parse_config(start.manifest.config, path, {}, config_choices());
    } catch (const ConfigError& error) {
      throw IoError(path, fmt::format("is not understood: {}", error.what()));
    }
    expect_same_keys(start, saved, config, changes, note);
  }
  compare_tensors(start.checkpoint, parameter_names(start.manifest), tensor_names(model.graph, {}),
                  allowed);
  expect_same_shapes(start, model, precision, config.train.precision);
}

}  // namespace garonne::train
