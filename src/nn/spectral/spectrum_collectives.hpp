// Nodes that move spectra between the members of a tensor group, and compute nothing else. Each
// member transforms its rows of a field to all modes: the spectrum is the sum of these parts. Each
// contracts a piece of the modes, and needs all of them again for its rows. The volume is that of
// the kept modes, whatever the points; a transposition of the field along one axis would move
// rows / members instead of the kept frequencies of that axis, so it is the better one only where
// most frequencies are kept by many members.
//
// Both are divided at their collective, in a tensor group of the cut's members, and each other's
// duals.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/node.hpp"

namespace garonne::nn {

// A value [outer, entries, columns], of the state type or of float64, whose entries are dealt out
// in runs. Pieces are [outer, slots(), columns]: the run from the first slot on, then zeros.
struct SpectrumCut {
  std::int64_t outer = 1;
  std::int64_t columns = 0;
  std::vector<std::int64_t> begins;  // of each member's run, then the number of entries
  bool is_double = false;            // whatever the state type

  std::int64_t members() const { return static_cast<std::int64_t>(begins.size()) - 1; }
  std::int64_t entries() const { return begins.back(); }
  std::int64_t entries_of(std::int64_t member) const;
  std::int64_t slots() const;  // the longest run
  std::vector<std::int64_t> whole_shape() const { return {outer, entries(), columns}; }
  std::vector<std::int64_t> piece_shape() const { return {outer, slots(), columns}; }
  std::int64_t piece_elements() const { return outer * slots() * columns; }
};

// Runs of nn/fields/field_rows.hpp: of `indices`, each of which stands for `factor` entries.
std::vector<std::int64_t> even_runs(std::int64_t indices, std::int64_t members,
                                    std::int64_t factor = 1);

// This member's part of a sum [outer, entries, columns] -> its piece of the sum.
std::unique_ptr<Node> make_sum_spectrum(SpectrumCut cut);

// A member's piece -> all entries [outer, entries, columns].
std::unique_ptr<Node> make_gather_spectrum(SpectrumCut cut);

}  // namespace garonne::nn
