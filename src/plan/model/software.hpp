// How the program that a plan is timed for does what Garonne would do otherwise. A cluster file says
// it where the step times of another framework are wanted; what is planned is Garonne's either way.
#pragma once

#include <string>

namespace garonne::plan {

struct Software {
  std::string name;  // for people
  // Attention writes its scores to memory and reads them again, with all later positions, too.
  bool stores_scores = false;
  // What is no product is a kernel for each operation, which reads and writes memory: norms,
  // activations, sums, dropout, and the loss, whose logits become float32 first.
  bool unfused = false;
  // Gradients are summed over data ranks while the backward goes on; else once it has ended.
  bool hides_reductions = true;
  // Stages have blocks by their seconds; else equally many.
  bool balances_stages = true;
  // The update of all parameters is a few kernels; else one for each.
  bool joins_updates = false;
  // That the host takes to issue the forward of a block, and as much for its backward; 0: by its
  // kernels.
  double block_issue_seconds = 0;

  bool operator==(const Software&) const = default;
};

}  // namespace garonne::plan
