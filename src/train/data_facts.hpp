// What follows from a run's data alone and its model needs.
#pragma once

#include <cstdint>
#include <string>

#include "nn/field_model.hpp"

namespace garonne::train {

struct DataFacts {
  std::int64_t vocabulary = 0;
  std::string tokenizer;
  nn::FieldShape fields;
};

}  // namespace garonne::train
