#include "nn/fields/field_rows.hpp"

#include <algorithm>

namespace garonne::nn {

std::int64_t FieldRows::present() const {
  return static_cast<std::int64_t>(slots.size()) - std::count(slots.begin(), slots.end(), none);
}

FieldRows run_of_rows(std::int64_t whole, std::int64_t longer, const FieldCut& cut) {
  FieldRows rows{whole, {}};
  const std::int64_t end = std::min(whole, even_begin(longer, cut.members, cut.member + 1));
  for (std::int64_t slot = 0; slot < even_slots(longer, cut.members); ++slot) {
    const std::int64_t row = even_begin(longer, cut.members, cut.member) + slot;
    rows.slots.push_back(row < end ? row : FieldRows::none);
  }
  return rows;
}

Box even_box(std::vector<std::int64_t> global, const FieldCut& cut) {
  Box box = whole_box(std::move(global));
  box.offset[0] = even_begin(box.global[0], cut.members, cut.member);
  box.shape[0] = even_begin(box.global[0], cut.members, cut.member + 1) - box.offset[0];
  return box;
}

FieldRows mirrored_rows(std::int64_t whole, const FieldCut& cut) {
  FieldRows rows = run_of_rows(whole / 2, whole / 2, cut);
  rows.whole = whole;
  const std::vector<std::int64_t> north = rows.slots;
  if (whole % 2 == 1)
    rows.slots.push_back(cut.member + 1 == cut.members ? whole / 2 : FieldRows::none);
  for (auto row = north.rbegin(); row != north.rend(); ++row)
    rows.slots.push_back(*row == FieldRows::none ? FieldRows::none : whole - 1 - *row);
  return rows;
}

}  // namespace garonne::nn
