// Which tokens of a model begin and end its texts.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <vector>

#include "base/json_input.hpp"
#include "data/tokenizers/tokenizer.hpp"

namespace garonne::train {

struct TextMarks {
  std::optional<std::uint32_t> begin;
  std::vector<std::uint32_t> ends;  // any of them; the first is the one to write
};

// Of an object with bos_token_id and eos_token_id, which may be missing or null, as Hugging Face's
// config.json has them; the ends may be one id or a list. Refused, by key: what is no id below
// `vocabulary`.
TextMarks marks_from_json(const JsonPlace& place, std::int64_t vocabulary);

// The same keys, null for none.
nlohmann::ordered_json to_json(const TextMarks& marks);

// What the model's own files said, and of what they did not say what the tokenizer, which may be
// null, has.
TextMarks marks_of(const TextMarks& own, const data::Tokenizer* tokenizer);

}  // namespace garonne::train
