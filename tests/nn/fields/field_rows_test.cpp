// How rows are dealt out: each to one member, the same slots on all, and mirrored where asked for.
#include "nn/fields/field_rows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "nn/fields/row_runs.hpp"

namespace garonne::nn {
namespace {

TEST(FieldRows, EveryRowHasOneSlotOfOneMember) {
  for (const std::int64_t whole : {5, 16, 17, 33, 721}) {
    for (const std::int64_t padding : {0, 3}) {
      for (int members = 1; members <= 5; ++members) {
        std::multiset<std::int64_t> runs;
        std::multiset<std::int64_t> mirrored;
        for (int member = 0; member < members; ++member) {
          const FieldCut cut{member, members};
          const FieldRows run = run_of_rows(whole, whole + padding, cut);
          EXPECT_EQ(run.slots.size(),
                    static_cast<std::size_t>((whole + padding + members - 1) / members));
          // One run from the first slot on.
          for (std::int64_t slot = 0; slot < run.present(); ++slot)
            EXPECT_EQ(run.row(slot), run.row(0) + slot);
          runs.insert(run.slots.begin(), run.slots.end());

          const FieldRows pairs = mirrored_rows(whole, cut);
          const auto slots = static_cast<std::int64_t>(pairs.slots.size());
          EXPECT_EQ(slots, 2 * ((whole / 2 + members - 1) / members) + whole % 2);
          for (std::int64_t slot = 0; slot < slots; ++slot) {
            const std::int64_t row = pairs.row(slot);
            const std::int64_t mirror = pairs.row(slots - 1 - slot);
            EXPECT_EQ(mirror, row == FieldRows::none ? FieldRows::none : whole - 1 - row);
            if (slot > 0 && row != FieldRows::none && pairs.row(slot - 1) != FieldRows::none) {
              EXPECT_GT(row, pairs.row(slot - 1));
            }
          }
          mirrored.insert(pairs.slots.begin(), pairs.slots.end());
        }
        runs.erase(FieldRows::none);
        mirrored.erase(FieldRows::none);
        std::multiset<std::int64_t> all;
        for (std::int64_t row = 0; row < whole; ++row) all.insert(row);
        EXPECT_EQ(runs, all) << whole << " rows over " << members;
        EXPECT_EQ(mirrored, all) << whole << " rows over " << members;
      }
    }
  }
}

// North, equator and south, of which the equator joins one of the others on the last member alone.
TEST(FieldRows, JoinedRowsAreAllOfThemInAFewRuns) {
  for (const std::int64_t whole : {5, 16, 17, 33, 721}) {
    for (int members = 1; members <= 5; ++members) {
      for (int member = 0; member < members; ++member) {
        const FieldCut cut{member, members};
        for (const FieldRows& rows :
             {run_of_rows(whole, whole + 3, cut), mirrored_rows(whole, cut)}) {
          std::vector<std::int64_t> slots(rows.slots.size(), FieldRows::none);
          const std::vector<RowRun> runs = runs_of(rows);
          for (std::size_t r = 0; r < runs.size(); ++r) {
            EXPECT_GT(runs[r].count, 0);
            if (r > 0) {
              const RowRun& last = runs[r - 1];
              EXPECT_FALSE(last.slot + last.count == runs[r].slot &&
                           last.row + last.count == runs[r].row);
            }
            for (std::int64_t i = 0; i < runs[r].count; ++i)
              slots[static_cast<std::size_t>(runs[r].slot + i)] = runs[r].row + i;
          }
          EXPECT_EQ(slots, rows.slots);
          EXPECT_LE(runs.size(), 2U);
        }
      }
    }
  }
}

TEST(FieldRows, BoxesAreTheRuns) {
  for (int member = 0; member < 3; ++member) {
    const FieldCut cut{member, 3};
    const Box box = even_box({7, 4, 2}, cut);
    const FieldRows rows = run_of_rows(7, 7, cut);
    EXPECT_EQ(box.offset[0], rows.row(0));
    EXPECT_EQ(box.shape, (std::vector<std::int64_t>{rows.present(), 4, 2}));
    EXPECT_EQ(box.global, (std::vector<std::int64_t>{7, 4, 2}));
  }
}

}  // namespace
}  // namespace garonne::nn
