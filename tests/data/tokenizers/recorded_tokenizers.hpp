// Small tokenizers of Hugging Face, with the ids that its package makes of texts.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "data/scratch.hpp"
#include "data/tokenizers/tokenizer.hpp"

namespace garonne::data::testing {

// What Hugging Face's package made (tests/peer/make_tokenizer_values.py).
inline const nlohmann::json& recorded() {
  static const nlohmann::json values = nlohmann::json::parse(
      read_bytes(std::string(GARONNE_SOURCE_DIR) + "/tests/data/tokenizers/small_tokenizers.json"));
  return values;
}

inline nlohmann::json json_of(const std::string& kind) {
  nlohmann::json whole = recorded().at("tokenizers").at(kind);
  whole["model"]["vocab"] = recorded().at("vocab");
  whole["model"]["merges"] = recorded().at("merges");
  return whole;
}

inline std::unique_ptr<Tokenizer> tokenizer_of(const std::string& kind, const Scratch& scratch) {
  return open_tokenizer(scratch.write(kind + ".json", json_of(kind).dump()));
}

}  // namespace garonne::data::testing
