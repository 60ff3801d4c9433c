// What follows from a run's data alone and its model needs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "nn/fields/field_model.hpp"
#include "train/workload/text_marks.hpp"

namespace garonne::train {

struct DataFacts {
  std::int64_t vocabulary = 0;
  std::string tokenizer;
  // Of a model that was imported, by its own files.
  TextMarks marks;
  nn::FieldShape fields = {};
  // To validate on; nothing where nobody looked into the data.
  std::optional<std::int64_t> validation_samples = std::nullopt;
};

}  // namespace garonne::train
