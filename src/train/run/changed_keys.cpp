#include "train/run/changed_keys.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "base/error.hpp"

namespace garonne::train {
namespace {

// Nothing of the training depends on them, or they end it. Values that are not there (data.missing)
// may turn up in the midst of a run.
bool always_may(const std::string& key) {
  constexpr std::array<std::string_view, 9> prefixes = {
      "train.steps", "train.stop_after", "data.missing", "grid.", "memory.",
      "evaluation.", "checkpoint.",      "log.",         "run."};
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string_view prefix) { return key.rfind(prefix, 0) == 0; });
}

// Why no run goes on with another value; empty for a key that may change where the user says so.
std::string obstacle(const std::string& key) {
  if (key == "model.dropout" || key == "model.attention_dropout") return "";
  if (key.rfind("model.", 0) == 0)
    return "is of the function that the parameters were trained for; begin another run with them, "
           "by --init-from (and --init-change)";
  if (key == "train.precision")
    return "is the type of what checkpoints hold; begin another run, by --init-from";
  if (key == "optimizer.name" || key == "optimizer.complex")
    return "says which states there are; --allow-missing and --allow-unused name those that differ";
  return "";
}

const KeySpec& spec_of(const std::string& key) {
  const auto& keys = config_keys();
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const KeySpec& spec) { return spec.name == key; });
  if (found != keys.end()) return *found;
  std::vector<std::string> names;
  for (const KeySpec& spec : keys) names.push_back(spec.name);
  const std::string near = nearest_word(key, names);
  throw ConfigError("--change", key,
                    near.empty() ? "is no key; `garonne train --help` lists them"
                                 : fmt::format("is no key; did you mean {}?", near));
}

// Of a key before and now; nothing where one of them is not known.
struct Hashes {
  std::string before;
  std::string after;
};

std::optional<Hashes> hashes_of(const std::string& key, const nlohmann::json& saved_data,
                                const nlohmann::json& now) {
  if (!saved_data.is_object()) return std::nullopt;
  const auto saved = saved_data.find("contents");
  if (saved == saved_data.end() || !saved->is_object() || !now.is_object()) return std::nullopt;
  const auto before = saved->find(key);
  const auto after = now.find(key);
  if (before == saved->end() || after == now.end() || !before->is_string() || !after->is_string())
    return std::nullopt;
  return Hashes{before->get<std::string>(), after->get<std::string>()};
}

bool same_contents(const std::string& key, const nlohmann::json& saved_data,
                   const nlohmann::json& now) {
  const auto hashes = hashes_of(key, saved_data, now);
  return hashes && hashes->before == hashes->after;
}

constexpr std::array<std::string_view, 3> paths_of_data = {"data.path", "data.validation",
                                                           "data.statistics"};

bool is_path_of_data(const std::string& key) {
  return std::find(paths_of_data.begin(), paths_of_data.end(), key) != paths_of_data.end();
}

// Of a hash, for people.
std::string shortened(const std::string& hash) {
  constexpr std::size_t digits = 16;
  return hash.substr(0, digits);
}

}  // namespace

void expect_changeable(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    const std::string why = obstacle(spec_of(key).name);
    if (!why.empty()) throw ConfigError("--change", key, why);
  }
}

std::vector<KeyChange> allowed_changes(const RunConfig& saved, const RunConfig& now,
                                       std::int64_t step, const nlohmann::json& saved_data,
                                       const AllowedChanges& allowed,
                                       const std::string& run_directory) {
  std::vector<KeyChange> changes;
  for (const std::string& key : changed_keys(saved, now)) {
    if (always_may(key)) continue;
    const KeySpec& spec = spec_of(key);
    KeyChange change{step, key, spec.get(saved), spec.get(now)};
    const bool named =
        std::find(allowed.keys.begin(), allowed.keys.end(), key) != allowed.keys.end();
    const bool of_tensors = key.rfind("model.", 0) == 0 || key.rfind("optimizer.", 0) == 0;
    const bool may = named || (allowed.other_tensors && of_tensors) ||
                     same_contents(key, saved_data, allowed.contents);
    if (!may) {
      const std::string by_name =
          obstacle(key).empty() ? fmt::format("go on with it by `--change {}`, ", key) : "";
      throw ConfigError(
          key, change.after,
          fmt::format("the run in {0} was made with {1}; set it back, {2}or give another "
                      "run.directory, with `--init-from {0}` to begin with its weights",
                      run_directory, change.before, by_name));
    }
    changes.push_back(std::move(change));
  }
  return changes;
}

std::vector<KeyChange> changed_contents(const RunConfig& now, std::int64_t step,
                                        const nlohmann::json& saved_data,
                                        const std::vector<KeyChange>& changes,
                                        const AllowedChanges& allowed) {
  for (const KeyChange& change : changes)
    if (change.key.starts_with("data.") && !is_path_of_data(change.key)) return {};
  std::vector<KeyChange> found;
  for (const std::string_view name : paths_of_data) {
    const std::string key(name);
    const std::string path = spec_of(key).get(now);
    const auto hashes = hashes_of(key, saved_data, allowed.contents);
    const bool moved = std::any_of(changes.begin(), changes.end(),
                                   [&](const KeyChange& change) { return change.key == key; });
    // Without a path they are of those that another key names.
    if (path.empty() || moved || !hashes || hashes->before == hashes->after) continue;
    if (std::find(allowed.keys.begin(), allowed.keys.end(), key) == allowed.keys.end()) {
      throw ConfigError(
          key, path,
          fmt::format(
              "holds other data than up to step {} of the run in {} (contents {}, and {} then): "
              "what is there was changed or replaced; put it back, go on with it by `--change {}`, "
              "or give another run.directory, with `--init-from` to begin with its weights",
              step, now.run.directory, shortened(hashes->after), shortened(hashes->before), key));
    }
    found.push_back({step, key, fmt::format("{} (contents {})", path, shortened(hashes->before)),
                     fmt::format("{} (contents {})", path, shortened(hashes->after))});
  }
  return found;
}

}  // namespace garonne::train
