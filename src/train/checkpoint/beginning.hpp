// What a new run took its parameters from, remembered in its directory ("garonne.beginning",
// docs/formats.md) and in the manifests of its checkpoints: its step 0 is that, and not the seed's.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/json_input.hpp"

namespace garonne::train {

struct Beginning {
  std::string given;       // as the user said it
  std::string checkpoint;  // an absolute path
  std::int64_t step = 0;   // of that checkpoint
  std::string manifest;    // the hash by which its manifest guards itself
  // By which it may differ from the run's model: as AllowedTensors, and keys of the model.
  std::vector<std::string> missing;
  std::vector<std::string> unused;
  std::vector<std::string> changes;
};

nlohmann::ordered_json to_json(const Beginning& beginning);
// IoError as of any key of a manifest.
Beginning beginning_from_json(const JsonPlace& place);

// "the parameters of runs/first/checkpoints/step-400 (step 400, manifest 0123456789abcdef)".
std::string to_text(const Beginning& beginning);

// Makes the directory where it is missing. Throws IoError.
void save_beginning(const std::string& run_directory, const Beginning& beginning);

// What the directory remembers; nothing of a run that began from its seed. Throws IoError.
std::optional<Beginning> read_beginning(const std::string& run_directory);

}  // namespace garonne::train
