// A run that goes on with keys that are others than those its checkpoint was made with: which may
// be.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "train/checkpoint/key_change.hpp"

namespace garonne::train {

// What may be another than it was, besides the keys that always may.
struct AllowedChanges {
  bool other_tensors = false;     // model and optimizer (--allow-missing, --allow-unused)
  std::vector<std::string> keys;  // named by the user (--change)
  // What the data hold now, by key, as `contents` of a manifest's data: a path to the same contents
  // may be another.
  nlohmann::json contents = nlohmann::json::object();
};

// Throws ConfigError for a name of --change that is no key, or one of a key that no run can go on
// with another value of.
void expect_changeable(const std::vector<std::string>& keys);

// What has changed of the keys that do not always may, in the order of the table of keys. Throws
// ConfigError for the first that is not allowed. `saved_data`: of the checkpoint's manifest;
// `run_directory` is named in messages.
std::vector<KeyChange> allowed_changes(const RunConfig& saved, const RunConfig& now,
                                       std::int64_t step, const nlohmann::json& saved_data,
                                       const AllowedChanges& allowed,
                                       const std::string& run_directory);

// What data at paths that are as they were hold now and did not when the checkpoint was made, by
// the hashes that it says; nothing of keys that it says nothing of, or that are in `changes`, and
// nothing where another key of data is, which may say what is read of them. Throws ConfigError for
// the first that --change does not name.
std::vector<KeyChange> changed_contents(const RunConfig& now, std::int64_t step,
                                        const nlohmann::json& saved_data,
                                        const std::vector<KeyChange>& changes,
                                        const AllowedChanges& allowed);

}  // namespace garonne::train
