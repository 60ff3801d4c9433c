// How a field is cut over the ranks of a tensor group: by rows, the points of its first axis.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/box.hpp"

namespace garonne::nn {

// Whose part of a model is made: one member of a tensor group.
struct FieldCut {
  int member = 0;
  int members = 1;
  bool cuts() const { return members > 1; }
};

// The rows that one member has, in slots: all members have equally many, so that all run the same
// Program. A slot without a row holds numbers that nothing reads: whatever adds over rows leaves
// it out, so its gradient is 0.
struct FieldRows {
  static constexpr std::int64_t none = -1;

  std::int64_t whole = 0;           // rows of the field
  std::vector<std::int64_t> slots;  // a row of the field, or none; empty = every row in its place

  bool cut() const { return !slots.empty(); }
  // The row in a slot, where nothing is cut too.
  std::int64_t row(std::int64_t slot) const {
    return cut() ? slots[static_cast<std::size_t>(slot)] : slot;
  }
  std::int64_t present() const;  // slots with a row, where it is cut
};

// Where the run of a member begins when indices are dealt out in runs whose lengths differ by at
// most one; `member` = `members` is the end.
constexpr std::int64_t even_begin(std::int64_t indices, std::int64_t members, std::int64_t member) {
  return indices * member / members;
}
// The longest of them.
constexpr std::int64_t even_slots(std::int64_t indices, std::int64_t members) {
  return (indices + members - 1) / members;
}
// What a member has of a tensor of this shape whose first axis is dealt out so.
Box even_box(std::vector<std::int64_t> global, const FieldCut& cut);

// One run of rows a member. The field may be the front of a longer one (padding of the domain) that
// is dealt out: rows from `whole` on are none.
FieldRows run_of_rows(std::int64_t whole, std::int64_t longer, const FieldCut& cut);

// Runs of the northern half and their mirrors, so that a part is a grid that is symmetric about the
// equator too; where the number of rows is odd, all have a slot for the equator and the last member
// has the row.
FieldRows mirrored_rows(std::int64_t whole, const FieldCut& cut);

}  // namespace garonne::nn
