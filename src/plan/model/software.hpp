// How another framework does what Garonne does otherwise, as far as step times depend on it. A
// cluster file says it where plans are held against step times of such a framework; what is planned
// is Garonne's either way, bytes included.
#pragma once

#include <string>

namespace garonne::plan {

struct ModelGraph;
struct NodeSpec;

struct Software {
  std::string name;  // for people
  // Attention computes all scores, those of later positions too, and writes them to memory between
  // its operations. Its backward computes none again.
  bool stores_scores = false;
  // The loss is a kernel for each operation, on logits that become float32 first.
  bool unfused_loss = false;
  // Stages have blocks by their seconds; else equally many.
  bool balances_stages = true;
  // That the host takes to issue the forward of a block, and as much for its backward, with all
  // that they communicate; the host takes nothing else then. 0: all by kernels.
  double block_issue_seconds = 0;
  // The host issues nothing before a message between stages has come, or gone, that is waited for;
  // else it is ahead of the device.
  bool waits_for_messages = false;

  bool operator==(const Software&) const = default;
};

// Bytes that a pass of the node moves beside its inputs and its output, and how many times the
// operations that are declared it carries out, where the software is such.
struct SoftwarePass {
  double bytes = 0;
  double operations = 1;
};
// The graph with seconds by which balanced_parts deals out equally many blocks, the first and the
// last of the model beside them.
ModelGraph with_equal_blocks(const ModelGraph& graph);

SoftwarePass software_forward(const Software& software, const NodeSpec& node, double number_bytes);
SoftwarePass software_backward(const Software& software, const NodeSpec& node, double number_bytes);

}  // namespace garonne::plan
