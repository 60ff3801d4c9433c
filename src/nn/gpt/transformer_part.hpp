// What part of a transformer a tensor rank holds.
#pragma once

namespace garonne::nn {

struct TransformerPart {
  int tensor = 0;  // which of the tensor ranks
  int tensor_ranks = 1;
  bool sequence_parallel = false;  // norms, dropout and residuals on a piece of the rows
  // Sums over the tensor ranks travel in what nodes compute in; else in what gradients are kept in.
  bool compute_wire = true;
};

}  // namespace garonne::nn
