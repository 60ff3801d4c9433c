#include "train/checkpoint/key_change.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace garonne::train {

std::string to_text(const KeyChange& change) {
  return fmt::format("{} is {} from step {} on, and was {}", change.key, change.after,
                     change.step + 1, change.before);
}

nlohmann::ordered_json to_json(const KeyChange& change) {
  return {{"step", change.step},
          {"key", change.key},
          {"before", change.before},
          {"after", change.after}};
}

KeyChange change_from_json(const JsonPlace& place) {
  return {place.key("step").integer(0), place.key("key").text(), place.key("before").text(),
          place.key("after").text()};
}

}  // namespace garonne::train
