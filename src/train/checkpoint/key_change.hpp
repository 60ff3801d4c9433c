// What a checkpoint says of a key of its run that changed while the run went on.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/json_input.hpp"

namespace garonne::train {

struct KeyChange {
  std::int64_t step = 0;  // the last one before it
  std::string key;
  std::string before;
  std::string after;
};

// "optimizer.learning_rate is 0.001 from step 31 on, and was 0.003".
std::string to_text(const KeyChange& change);

nlohmann::ordered_json to_json(const KeyChange& change);
// IoError as of any key of a manifest.
KeyChange change_from_json(const JsonPlace& place);

}  // namespace garonne::train
