#include "train/workload/text_marks.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace garonne::train {

TextMarks marks_from_json(const JsonPlace& place, std::int64_t vocabulary) {
  const auto is_there = [&](const char* key) {
    return place.has(key) && !place.key(key).json().is_null();
  };
  const auto id_of = [&](const JsonPlace& id) {
    return static_cast<std::uint32_t>(id.integer(0, vocabulary - 1));
  };
  TextMarks marks;
  if (is_there("bos_token_id")) marks.begin = id_of(place.key("bos_token_id"));
  if (!is_there("eos_token_id")) return marks;
  const JsonPlace ends = place.key("eos_token_id");
  if (!ends.json().is_array()) {
    marks.ends.push_back(id_of(ends));
    return marks;
  }
  for (const JsonPlace& end : ends.elements()) {
    const std::uint32_t id = id_of(end);
    if (std::find(marks.ends.begin(), marks.ends.end(), id) == marks.ends.end())
      marks.ends.push_back(id);
  }
  return marks;
}

nlohmann::ordered_json to_json(const TextMarks& marks) {
  nlohmann::ordered_json json = {{"bos_token_id", nullptr}, {"eos_token_id", nullptr}};
  if (marks.begin) json["bos_token_id"] = *marks.begin;
  if (marks.ends.size() == 1) json["eos_token_id"] = marks.ends.front();
  if (marks.ends.size() > 1) json["eos_token_id"] = marks.ends;
  return json;
}

TextMarks marks_of(const TextMarks& own, const data::Tokenizer* tokenizer) {
  TextMarks marks = own;
  if (tokenizer == nullptr) return marks;
  if (!marks.begin) marks.begin = tokenizer->begin_of_text();
  if (marks.ends.empty() && tokenizer->end_of_text()) marks.ends = {*tokenizer->end_of_text()};
  return marks;
}

}  // namespace garonne::train
