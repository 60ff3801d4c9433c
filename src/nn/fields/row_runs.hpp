// Rows of a cut field that one kernel can do.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/fields/field_rows.hpp"

namespace garonne::nn {

// Slots that follow each other, and so do their rows.
struct RowRun {
  std::int64_t slot = 0;  // the first
  std::int64_t row = 0;   // in it
  std::int64_t count = 0;
};
// As long as they can be; slots without a row are in none. Of rows that are cut.
std::vector<RowRun> runs_of(const FieldRows& rows);

}  // namespace garonne::nn
