// What a member does in a reduce-scatter in the canonical order: who sends which piece where, what
// is staged where, and what is summed. For the room's own use.
#pragma once

#include <vector>

#include "dist/sum_order.hpp"

namespace garonne::dist {

// Where the numbers of one piece are: in the data at the place of that piece, or in staging.
struct PiecePlace {
  int piece = 0;  // its owner, an index into the group
  int slot = -1;  // of staging, each of piece_elements; -1 = in the data
};

// Sends come in the order in which the other end receives.
struct PieceMove {
  int peer = 0;
  PiecePlace place;
};

// result = (terms[0] + terms[1]) + ..., over as many elements as the piece has. The result is one
// of the terms.
struct PieceSum {
  PiecePlace result;
  std::vector<PiecePlace> terms;
};

// All moves go at once; when they are there, the sums, in order.
struct ReductionStep {
  std::vector<PieceMove> sends;
  std::vector<PieceMove> receives;
  std::vector<PieceSum> sums;
};

// One step where the order is flat, two where it is not: within the nodes, then between them. In
// the second a member meets those with its place in the other nodes only, so that what leaves a
// node is as much as if it were one member. Its own piece ends in its place in the data; the other
// pieces of the data are only read. It uses members - 1 slots of staging.
std::vector<ReductionStep> reduction_of(const SumOrder& order, int member);

}  // namespace garonne::dist
