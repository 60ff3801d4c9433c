#include "nn/fields/row_runs.hpp"

namespace garonne::nn {

std::vector<RowRun> runs_of(const FieldRows& rows) {
  std::vector<RowRun> runs;
  for (std::int64_t slot = 0; slot < static_cast<std::int64_t>(rows.slots.size()); ++slot) {
    const std::int64_t row = rows.row(slot);
    if (row == FieldRows::none) continue;
    const bool follows = !runs.empty() && runs.back().slot + runs.back().count == slot &&
                         runs.back().row + runs.back().count == row;
    if (follows) {
      ++runs.back().count;
    } else {
      runs.push_back({slot, row, 1});
    }
  }
  return runs;
}

}  // namespace garonne::nn
